/*
 * `kgate list`: the sections of a battery, and with --cells every cell that a run would
 * run. The cells come from the plugins themselves, planned in hosts as in a run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/battery.h"
#include "runner/commands.h"
#include "runner/escape.h"

static const char *miss_of(const struct kg_battery *b, size_t s, const char *role)
{
    return role ? json_string_value(json_object_get(b->misses[s], role)) : NULL;
}

static void add_text(json_t *json, const char *key, const char *text)
{
    char *clean = kg_utf8_dup(text, strlen(text));
    json_object_set_new(json, key, json_string(clean));
    free(clean);
}

static json_t *cells_json(const struct kg_battery *b, size_t s)
{
    const struct kg_result_section *section = &b->result.sections[s];
    json_t *cells = json_array();
    for (size_t i = 0; i < section->n_cells; i++) {
        const struct kg_result_cell *cell = &section->cells[i];
        const char *miss = miss_of(b, s, cell->role);
        json_t *json = json_pack("{s:s, s:b, s:b, s:b}", "id", cell->id, "selected",
                                 (int)cell->selected, "optional", (int)cell->optional,
                                 "ordered", (int)cell->ordered);
        if (cell->role)
            add_text(json, "role", cell->role);
        if (!cell->selected)
            add_text(json, "left_out", cell->detail ? cell->detail : "");
        if (miss)
            add_text(json, "missing", miss);
        json_array_append_new(cells, json);
    }
    return cells;
}

static void print_json(const struct kg_battery *b, bool planned)
{
    json_t *sections = json_array();
    for (size_t s = 0; s < b->result.n_sections; s++) {
        const struct kg_result_section *section = &b->result.sections[s];
        const struct kg_manifest_section *from = &b->manifest->sections[s];
        json_t *tags = json_array();
        for (size_t i = 0; i < from->n_tags; i++)
            json_array_append_new(tags, json_string(from->tags[i]));
        json_t *json = json_pack("{s:s, s:b, s:b, s:o, s:O}", "name", section->name,
                                 "selected", section->status != KG_SECTION_FILTERED,
                                 "optional", (int)section->optional, "tags", tags,
                                 "artifacts", section->artifacts);
        if (section->status == KG_SECTION_FILTERED)
            add_text(json, "left_out", section->detail);
        if (section->status == KG_SECTION_ERROR)
            add_text(json, "error", section->detail);
        if (planned)
            json_object_set_new(json, "cells", cells_json(b, s));
        json_array_append_new(sections, json);
    }
    json_t *root =
        json_pack("{s:s, s:o}", "manifest", b->manifest->name, "sections", sections);
    json_dumpf(root, stdout, JSON_SORT_KEYS | JSON_INDENT(1));
    putchar('\n');
    json_decref(root);
}

static void print_shown(const char *text)
{
    char *clean = kg_escape_dup(text);
    fputs(clean, stdout);
    free(clean);
}

static void print_cells(const struct kg_battery *b, size_t s)
{
    const struct kg_result_section *section = &b->result.sections[s];
    for (size_t i = 0; i < section->n_cells; i++) {
        const struct kg_result_cell *cell = &section->cells[i];
        if (!cell->selected)
            continue;
        printf("  %s", cell->id);
        if (cell->role)
            printf("  [%s]", miss_of(b, s, cell->role) ? "file missing" : "file");
        if (cell->optional)
            fputs("  [optional]", stdout);
        putchar('\n');
    }
}

static void print_text(const struct kg_battery *b, bool with_cells)
{
    size_t n_cells = 0, n_left_out = 0, n_sections = 0, width = 0;
    for (size_t s = 0; s < b->result.n_sections; s++) {
        size_t n = strlen(b->result.sections[s].name);
        width = n > width ? n : width;
    }
    for (size_t s = 0; s < b->result.n_sections; s++) {
        const struct kg_result_section *section = &b->result.sections[s];
        size_t n = 0;
        if (section->status == KG_SECTION_FILTERED)
            continue;
        n_sections++;
        for (size_t i = 0; i < section->n_cells; i++) {
            n += section->cells[i].selected;
            n_left_out += !section->cells[i].selected;
        }
        n_cells += n;
        printf("%-*s  ", (int)width, section->name);
        if (section->status == KG_SECTION_ERROR) {
            fputs("ERROR: ", stdout);
            print_shown(section->detail);
            putchar('\n');
            continue;
        }
        printf("%4zu cell%s\n", n, n == 1 ? "" : "s");
        const char *role;
        json_t *miss;
        json_object_foreach(b->misses[s], role, miss)
        {
            printf("%*s  missing %s: ", (int)width, "", role);
            print_shown(json_string_value(miss));
            putchar('\n');
        }
        if (with_cells)
            print_cells(b, s);
    }
    printf("\n%zu cells in %zu section%s", n_cells, n_sections,
           n_sections == 1 ? "" : "s");
    if (b->result.n_sections > n_sections || n_left_out > 0)
        printf("; left out: %zu sections, %zu cells", b->result.n_sections - n_sections,
               n_left_out);
    putchar('\n');
}

int kg_cmd_list(const struct kg_options *options, struct kg_error *error)
{
    struct kg_battery battery;
    int status = 2;
    if (kg_battery_load(&battery, options, error) != 0)
        goto out;
    kg_battery_aim(&battery, NULL, NULL, 0, NULL, 1);
    struct kg_watcher watcher = {.select = kg_battery_select,
                                 .select_context = &options->select};
    int rc = kg_supervise(battery.tasks, battery.n_tasks, 1, &watcher, error);
    if (rc != 0) {
        status = rc > 0 ? 130 : 2;
        goto out;
    }
    if (kg_battery_accept(&battery, &battery.result, error) != 0)
        goto out;
    if (options->json)
        print_json(&battery, options->cells);
    else
        print_text(&battery, options->cells);
    status = 0;
    for (size_t s = 0; s < battery.result.n_sections && status == 0; s++)
        if (battery.result.sections[s].status == KG_SECTION_ERROR)
            status = 1;
out:
    kg_battery_clear(&battery);
    return status;
}
