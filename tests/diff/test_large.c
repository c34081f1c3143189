/* A pair of results of 20,000 cells: how long the diff takes, how much memory, and how long
   its Markdown is. The files are made here. Usage: test_large KGATE FOLDER [--no-limits],
   the last where a sanitizer is built in. */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CELLS = 20000, SECTIONS = 40, TRIES = 12 };
#define MOST_SECONDS 0.5
#define MOST_KIB (200 * 1024)
#define MOST_MARKDOWN 60000

static void write_cell(FILE *out, int i, bool head)
{
    int s = i * SECTIONS / CELLS;
    bool fails = head && i % 97 == 0;
    double margin = 0.001 * (1 + i % 500) * (head && i % 3 == 0 ? 1.7 : 1);
    fprintf(
        out,
        "%s  {\n   \"checks\": [\n    {\n     \"bad\": %d,\n     \"bound\": 0.01,\n     "
        "\"class\": \"bound\",\n     \"count\": 4096,\n     \"margin\": %.17g,\n     "
        "\"metric\": \"abs-err\",\n     \"name\": \"y\",\n     \"ok\": %s,\n     "
        "\"value\": %.17g,\n     \"worst\": {\n      \"got\": 1.2345678806304932,\n      "
        "\"index\": %d,\n      \"want\": 1.2345679012345678\n     }\n    }\n   ],\n",
        i ? ",\n" : "", fails, fails ? 40.0 : margin, fails ? "false" : "true",
        fails ? 0.4 : margin * 0.01, i);
    fprintf(
        out,
        "   \"detail\": \"\",\n   \"determinism\": \"ordered\",\n   \"digest\": {\n    "
        "\"base/y\": \"%016x%016x\"\n   },\n   \"id\": "
        "\"section%02d.cell-%05d.rows.base%d-t5\",\n   \"notes\": [],\n   \"optional\": "
        "false,\n   \"params\": {\n    \"cols\": 4096,\n    \"rows\": %d\n   },\n",
        (unsigned)i, head && i % 2 ? 7u : 0u, s, i, i, i);
    fprintf(
        out,
        "   \"reason\": \"%s\",\n   \"repro\": \"kgate run quick --device emu --cell "
        "section%02d.cell-%05d.rows.base%d-t5\",\n   \"seconds\": 0.0125,\n   "
        "\"section\": \"section%02d\",\n   \"times\": {\n    \"download\": 1e-06,\n    "
        "\"kernel\": 0.001,\n    \"oracle\": 0.01,\n    \"upload\": 1e-06\n   },\n   "
        "\"verdict\": \"%s\"\n  }",
        fails ? "check-failed" : "", s, i, i, s, fails ? "FAIL" : "PASS");
}

static void write_result(const char *path, bool head)
{
    FILE *out = fopen(path, "w");
    if (!out) {
        perror(path);
        exit(1);
    }
    fputs("{\n \"cells\": [\n", out);
    for (int i = 0; i < CELLS; i++)
        write_cell(out, i, head);
    fprintf(out,
            "\n ],\n \"run\": {\"provider\": {\"name\": \"emu\", \"digest\": \"%d\"}},\n "
            "\"schema\": {\"major\": 1, \"minor\": 0, \"name\": \"kgate.result\"},\n "
            "\"sections\": [",
            head);
    for (int s = 0; s < SECTIONS; s++)
        fprintf(out, "%s{\"name\": \"section%02d\", \"status\": \"ok\", \"seconds\": 1}",
                s ? ", " : "", s);
    fputs("],\n \"summary\": {\"verdict\": \"GREEN\"}\n}\n", out);
    if (fclose(out) != 0) {
        perror(path);
        exit(1);
    }
}

/* Runs kgate diff; seconds of CPU time and peak KiB. It has one thread and reads files that are
   in memory, so on an idle machine that is its wall time; on a busy one the wall tells of
   others. */
static int run(const char *kgate, const char *format, double *seconds, long *kib)
{
    struct rusage usage;
    int status;
    pid_t child = fork();
    if (child == 0) {
        int fd = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0644);
        dup2(fd, 1);
        execl(kgate, kgate, "diff", "--format", format, "base.json", "head.json", NULL);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &usage) < 0)
        return -1;
    *seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    *kib = usage.ru_maxrss;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int check(const char *kgate, const char *format, bool limits)
{
    double best = 1e9, seconds = 0;
    long kib = 0;
    struct stat info;
    for (int i = 0; i < TRIES && best > MOST_SECONDS; i++) {
        /* Others use the machine too, and take caches and turns from it for a while. */
        if (i > 0)
            usleep(500000);
        int status = run(kgate, format, &seconds, &kib);
        if (status != 1) {
            printf("not ok %s: exit status %d, not 1\n", format, status);
            return 1;
        }
        best = seconds < best ? seconds : best;
        if (!limits)
            break;
    }
    stat("out", &info);
    printf("%s: %d cells, %.3f s, %ld MiB, %jd bytes\n", format, CELLS, best, kib / 1024,
           (intmax_t)info.st_size);
    int bad = limits && (best >= MOST_SECONDS || kib >= MOST_KIB);
    if (strcmp(format, "markdown") == 0)
        bad |= info.st_size == 0 || info.st_size >= MOST_MARKDOWN;
    if (bad)
        printf("not ok %s: over a limit\n", format);
    return bad;
}

int main(int argc, char **argv)
{
    static char path[PATH_MAX];
    const char *kgate = argc < 3 ? NULL : realpath(argv[1], path);
    if (!kgate || (mkdir(argv[2], 0755) != 0 && access(argv[2], W_OK) != 0) ||
        chdir(argv[2]) != 0) {
        fprintf(stderr, "usage: test_large KGATE FOLDER [--no-limits]\n");
        return 2;
    }
    bool limits = argc < 4;
    write_result("base.json", false);
    write_result("head.json", true);
    int bad = check(kgate, "text", limits) + check(kgate, "markdown", limits) +
              check(kgate, "junit", limits) + check(kgate, "json", limits);
    unlink("base.json");
    unlink("head.json");
    unlink("out");
    return bad != 0;
}
