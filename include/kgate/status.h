/*
 * kgate/status.h: status codes shared by every kgate interface.
 */
#ifndef KGATE_STATUS_H
#define KGATE_STATUS_H

/* Every function that can fail returns 0 or one of these. */
enum kg_status {
    KG_OK = 0,
    KG_E_INVALID = -1, /* an argument breaks the function's contract */
    KG_E_UNSUPPORTED =
        -2,           /* well-formed, but this provider or device cannot; becomes SKIP */
    KG_E_MEMORY = -3, /* out of device or host memory */
    KG_E_LAUNCH = -4, /* the kernel could not be launched */
    KG_E_DEVICE = -5, /* the device faulted or is lost: nothing else will work */
    KG_E_IO = -6,     /* a file could not be read or written */
    KG_E_FORMAT = -7, /* a file or message breaks its format */
};

#define KG_TRY(expr)                                                                     \
    do {                                                                                 \
        int kg_try_rc_ = (expr);                                                         \
        if (kg_try_rc_ != 0)                                                             \
            return kg_try_rc_;                                                           \
    } while (0)

#if defined(__GNUC__)
#define KG_EXPORT __attribute__((visibility("default")))
#define KG_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define KG_EXPORT
#define KG_PRINTF(fmt, args)
#endif

#ifdef __cplusplus
#define KG_NORETURN [[noreturn]]
#else
#define KG_NORETURN _Noreturn
#endif

#endif
