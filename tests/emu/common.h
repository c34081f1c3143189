/*
 * tests/emu/common.h: cmocka for the C++ tests, which hold kernels of their own.
 */
#ifndef KG_TESTS_EMU_COMMON_H
#define KG_TESTS_EMU_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

extern "C" {
#include <cmocka.h>
}

#include "device/device.h"

/* emu/launch.cc */
void kg_emu_configure(uint64_t schedule_seed, int host_threads);
const char *kg_emu_last_error(void);

/* A launch that must fail with a text that holds `part`. */
#define ASSERT_FAULT(launch, part)                                                       \
    do {                                                                                 \
        assert_int_equal(launch, KG_E_LAUNCH);                                           \
        if (strstr(kg_emu_last_error(), part) == NULL)                                   \
            fail_msg("expected \"%s\" in \"%s\"", part, kg_emu_last_error());            \
    } while (0)

static inline uint32_t test_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8 ^ *state << 13;
}

#endif
