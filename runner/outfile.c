#include "runner/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/escape.h"

static int fail(struct kg_error *error, const char *path, int number)
{
    return kg_error_at_offset(error, KG_E_IO, path, -1, "cannot be written: %s",
                              strerror(number));
}

static bool is_in_place(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode);
}

int kg_outfile_open(struct kg_outfile *out, const char *path, struct kg_error *error)
{
    *out = (struct kg_outfile){.path = path};
    int fd;
    if (is_in_place(path)) {
        fd = open(path, O_WRONLY | O_CLOEXEC);
    } else {
        out->target = realpath(path, NULL);
        if (!out->target)
            out->target = kg_xstrdup(path);
        out->temporary = kg_format("%s.%d.tmp", out->target, (int)getpid());
        fd = open(out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                  0644);
    }
    out->stream = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (out->stream)
        return 0;
    int number = errno;
    if (fd >= 0)
        close(fd);
    free(out->target);
    free(out->temporary);
    return fail(error, path, number);
}

int kg_outfile_close(struct kg_outfile *out, bool keep, struct kg_error *error)
{
    int number = 0;
    errno = 0;
    if (keep && (fflush(out->stream) != 0 || ferror(out->stream)))
        number = errno ? errno : EIO;
    /* A pipe cannot be synced, and need not be. */
    if (keep && number == 0 && out->temporary && fsync(fileno(out->stream)) != 0)
        number = errno;
    if (fclose(out->stream) != 0 && number == 0 && keep)
        number = errno;
    if (out->temporary && keep && number == 0 && rename(out->temporary, out->target) != 0)
        number = errno;
    if (out->temporary && (!keep || number != 0))
        unlink(out->temporary);
    free(out->target);
    free(out->temporary);
    return keep && number != 0 ? fail(error, out->path, number) : 0;
}
