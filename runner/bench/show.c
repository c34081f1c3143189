#include "runner/bench/show.h"

#include <string.h>

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "";
}

static void show_ceilings(FILE *out, const json_t *bench)
{
    const json_t *c = json_object_get(bench, "ceilings");
    fprintf(
        out,
        "Ceilings   copy %.0f GB/s, read %.0f GB/s, f16 %.0f TFLOP/s, int8 %.0f TOP/s, "
        "empty launch %.2f us; noise %.2f %%\n",
        number(c, "copy_gbps"), number(c, "read_gbps"), number(c, "f16_tflops"),
        number(c, "int8_tops"), number(c, "empty_launch_us"),
        100 * number(json_object_get(bench, "noise_floor"), "relative"));
}

static void show_timing(FILE *out, const char *id, const char *arm, const json_t *t)
{
    char marks[96] = "";
    if (json_is_true(json_object_get(t, "invalid")))
        strcat(marks, "  INVALID: faster than the device can");
    if (json_is_true(json_object_get(t, "throttled")))
        strcat(marks, "  throttled");
    else if (number(t, "dropped") > 0)
        snprintf(marks + strlen(marks), sizeof marks - strlen(marks), "  %.0f dropped",
                 number(t, "dropped"));
    fprintf(out,
            "%-44s %-14s %10.2f us %5.1f %%  %7.0f GB/s %7.1f TFLOP/s %5.1f %% of %s%s\n",
            id, arm, number(t, "median_us"),
            50 *
                (json_number_value(json_array_get(json_object_get(t, "ci95_us"), 1)) -
                 json_number_value(json_array_get(json_object_get(t, "ci95_us"), 0))) /
                number(t, "median_us"),
            number(t, "gbps"), number(t, "tflops"), number(t, "roofline_percent"),
            text(t, "bound_by"), marks);
}

void kg_show_bench(FILE *out, const json_t *result)
{
    size_t i;
    const char *arm;
    json_t *cell, *timing;
    show_ceilings(out, json_object_get(json_object_get(result, "run"), "bench"));
    fprintf(out, "%-44s %-14s %10s    +-      %9s    %9s     roofline\n", "Cell", "Arm",
            "median", "rate", "rate");
    json_array_foreach(json_object_get(result, "cells"), i, cell)
    {
        json_object_foreach(json_object_get(cell, "timings"), arm, timing)
        {
            show_timing(out, text(cell, "id"), arm, timing);
        }
    }
    fputc('\n', out);
}

void kg_show_times(FILE *out, const json_t *result)
{
    static const char *const parts[] = {"upload", "kernel", "download", "oracle"};
    size_t i, k;
    json_t *section, *cell;
    fprintf(out, "%-24s %9s %9s %9s %9s %9s %9s\n", "Seconds", "all", "set-up", parts[0],
            parts[1], parts[2], parts[3]);
    json_array_foreach(json_object_get(result, "sections"), i, section)
    {
        double sums[4] = {0}, cells = 0;
        json_array_foreach(json_object_get(result, "cells"), k, cell)
        {
            if (strcmp(text(cell, "section"), text(section, "name")) != 0)
                continue;
            cells += number(cell, "seconds");
            for (int p = 0; p < 4; p++)
                sums[p] += number(json_object_get(cell, "times"), parts[p]);
        }
        double all = number(section, "seconds"), set_up = all - cells;
        fprintf(out, "%-24s %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f\n", text(section, "name"),
                all, set_up > 0 ? set_up : 0, sums[0], sums[1], sums[2], sums[3]);
    }
    fputc('\n', out);
}
