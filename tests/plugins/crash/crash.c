/*
 * Sections that do not survive themselves, one for each way to die. Each has the cells
 * before, fault, after; the supervisor must charge the death to `fault` alone (or to the
 * section, where it happens outside any cell) and still run `after`.
 *
 * Built once a kind, with CRASH set to the function below and CRASH_NAME to the name.
 */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kgate/check.h"

#define SECTION "crash-" CRASH_NAME

/* Where the host sends its events: the pipe that is open for writing and is not stdout. */
static int event_fd(void)
{
    for (int fd = 3; fd < 1024; fd++) {
        int flags = fcntl(fd, F_GETFL);
        if (flags >= 0 && (flags & O_ACCMODE) == O_WRONLY)
            return fd;
    }
    abort();
}

static void say(const char *text)
{
    ssize_t n = write(event_fd(), text, strlen(text));
    (void)n;
}

static void crash_segv(void)
{
    fputs("about to touch nothing \033[31m\n", stderr);
    static volatile uintptr_t nowhere =
        16; /* unknown to the compiler, which would warn */
    *(volatile int *)nowhere = 1;
}

static void crash_abort(void)
{
    abort();
}

/* Deaf to SIGTERM: only SIGKILL ends it. */
static void crash_hang(void)
{
    signal(SIGTERM, SIG_IGN);
    for (;;)
        pause();
}

static void crash_kill(void)
{
    raise(SIGKILL);
}

static void crash_exit(void)
{
    _exit(0);
}

static void crash_garbage(void)
{
    say("\x01\xff nonsense \033[2J\n");
    for (;;)
        pause();
}

static void crash_line(void)
{
    char block[4096];
    memset(block, 'x', sizeof block);
    for (;;) {
        ssize_t n = write(event_fd(), block, sizeof block);
        (void)n;
    }
}

/* Well-formed, but of a cell that nobody knows. */
static void crash_stranger(void)
{
    say("{\"ev\":\"begin\",\"id\":\"" SECTION ".stranger\"}\n");
    for (;;)
        pause();
}

/* Claims success, and then the host reports the cell a second time. */
static void crash_twice(void)
{
    say("{\"ev\":\"check\",\"id\":\"" SECTION
        ".fault\",\"name\":\"y\",\"class\":\"exact\","
        "\"ok\":true}\n"
        "{\"ev\":\"done\",\"id\":\"" SECTION ".fault\",\"verdict\":\"PASS\","
        "\"seconds\":0}\n");
}

/* Claims success without a comparison. */
static void crash_liar(void)
{
    say("{\"ev\":\"done\",\"id\":\"" SECTION ".fault\",\"verdict\":\"PASS\","
        "\"seconds\":0}\n");
    for (;;)
        pause();
}

/* Well-formed, and no end of it. */
static void crash_flood(void)
{
    for (;;)
        say("{\"ev\":\"check\",\"id\":\"" SECTION ".fault\",\"name\":\"y\","
            "\"class\":\"exact\",\"ok\":true}\n");
}

static void crash_spew(void)
{
    static char line[65536];
    memset(line, 'z', sizeof line);
    line[sizeof line - 1] = '\n';
    for (int i = 0; i < 1600; i++)
        fwrite(line, 1, sizeof line, stderr);
    fputs("the last words\n", stderr);
    abort();
}

/* A process that outlives the host, in the host's group and out of it. */
static void crash_orphan(void)
{
    for (int i = 0; i < 2; i++) {
        if (fork() == 0) {
            if (i == 1)
                setsid();
            signal(SIGTERM, SIG_IGN);
            for (;;)
                pause();
        }
    }
    abort();
}

static void crash_memory(void)
{
    for (;;) {
        char *block = malloc((size_t)8 << 20);
        if (block != NULL)
            memset(block, 1, (size_t)8 << 20);
        usleep(2000);
    }
}

/* As after a fault of the device: a verdict, and the wish for a new process. */
static void crash_lost(void)
{
    say("{\"ev\":\"done\",\"id\":\"" SECTION ".fault\",\"verdict\":\"FAIL\","
        "\"reason\":\"device-fault\",\"detail\":\"gone\",\"seconds\":0}\n");
    _exit(75);
}

/* From now on planning dies too, in every process that is started in this folder. */
#define RELAPSE_MARK "relapse.mark"
static void crash_relapse(void)
{
    close(open(RELAPSE_MARK, O_CREAT | O_WRONLY, 0600));
    abort();
}

static void crash_plan(void)
{
}

static void crash_leave(void)
{
    abort();
}

/* Well while there are cells; dies in an exit handler. */
static void crash_late(void)
{
    atexit(crash_leave);
}

static void crash_none(void)
{
}

/* The least that counts as a comparison: a buffer that the device was told to fill. */
static void check_something(struct kg_cell *cell)
{
    unsigned char *want = kg_alloc(cell, 64);
    memset(want, 0x5a, 64);
    struct kg_buf *y = kg_output(cell, "y", 64);
    KG_ARM(cell, "fill", NULL, kg_provider(cell)->device->fill(kg_ptr(y), 0x5a, 64));
    kg_check_exact(cell, "y", kg_fetch(y), want, 64, 1);
}

static void run_fine(struct kg_cell *cell, const void *row)
{
    (void)row;
    check_something(cell);
}

static void run_fault(struct kg_cell *cell, const void *row)
{
    (void)row;
    CRASH();
    check_something(cell);
}

static void plan(struct kg_plan *p)
{
    static void (*const unused[])(void) = {
        crash_segv,  crash_abort,    crash_hang,   crash_kill,    crash_exit,
        crash_line,  crash_stranger, crash_twice,  crash_liar,    crash_garbage,
        crash_spew,  crash_orphan,   crash_memory, crash_plan,    crash_late,
        crash_leave, crash_none,     crash_lost,   crash_relapse, crash_flood};
    (void)unused;
    static const struct kg_cell_spec cells[] = {
        {SECTION ".before", run_fine,  "", NULL, 0},
        {SECTION ".fault",  run_fault, "", NULL, 0},
        {SECTION ".after",  run_fine,  "", NULL, 0}
    };
    bool relapsed = strcmp(CRASH_NAME, "relapse") == 0 && access(RELAPSE_MARK, F_OK) == 0;
    if (strcmp(CRASH_NAME, "plan") == 0 || relapsed)
        abort();
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++)
        kg_plan_add(p, &cells[i]);
}

KG_EXPORT const struct kg_section kgate_section = {
    .abi = KG_SECTION_ABI,
    .size = sizeof(struct kg_section),
    .name = SECTION,
    .summary = "dies on purpose",
    .plan = plan,
};
