#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/host.h"

#define ID_MAX 128
#define CELLS_MAX 1000000

KG_NORETURN static void give_up(struct kg_plan *plan, int status, const char *format, ...)
    KG_PRINTF(3, 4);

static void give_up(struct kg_plan *plan, int status, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    kg_error_set(plan->error, status, "section %s: %s", plan->host->section->name, text);
    longjmp(plan->leave, 1);
}

void *kg_plan_alloc(struct kg_plan *plan, size_t bytes)
{
    if (plan->n_blocks == plan->blocks_capacity) {
        size_t capacity = plan->blocks_capacity ? 2 * plan->blocks_capacity : 64;
        void **blocks = realloc(plan->blocks, capacity * sizeof *blocks);
        if (blocks == NULL)
            give_up(plan, KG_E_MEMORY, "out of memory while planning");
        plan->blocks = blocks;
        plan->blocks_capacity = capacity;
    }
    void *block = calloc(1, bytes ? bytes : 1);
    if (block == NULL)
        give_up(plan, KG_E_MEMORY, "out of memory while planning (%zu bytes)", bytes);
    plan->blocks[plan->n_blocks++] = block;
    return block;
}

static char *copy_string(struct kg_plan *plan, const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(kg_plan_alloc(plan, bytes), text, bytes);
}

/* Ids go into globs, file names and result keys: no character needs quoting there. */
static void check_id(struct kg_plan *plan, const char *id)
{
    const char *section = plan->host->section->name;
    size_t prefix = strlen(section);
    size_t length = strlen(id);
    if (length > ID_MAX)
        give_up(plan, KG_E_FORMAT, "cell id longer than %d characters: %.40s...", ID_MAX,
                id);
    for (const char *p = id; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') ||
              strchr("._-", *p) != NULL))
            give_up(plan, KG_E_FORMAT,
                    "cell id has a character outside a-z 0-9 . _ -: %s", id);
    if (strncmp(id, section, prefix) != 0 || id[prefix] != '.' || id[prefix + 1] == '\0')
        give_up(plan, KG_E_FORMAT, "cell id does not start with \"%s.\": %s", section,
                id);
    if (json_object_get(plan->index, id) != NULL)
        give_up(plan, KG_E_FORMAT, "two cells are called %s", id);
}

static void add(struct kg_plan *plan, const struct kg_cell_spec *spec, const char *id)
{
    if (spec == NULL || id == NULL)
        give_up(plan, KG_E_INVALID, "a cell without a specification or an id");
    check_id(plan, id);
    if (spec->run == NULL)
        give_up(plan, KG_E_INVALID, "cell without a function: %s", id);
    if (spec->role != NULL && !kg_host_has_role(plan->host, spec->role))
        give_up(plan, KG_E_INVALID, "cell %s needs role \"%s\", which is not declared",
                id, spec->role);
    if (spec->flags & ~(uint32_t)(KG_CELL_ORDERED | KG_CELL_OPTIONAL))
        give_up(plan, KG_E_INVALID, "cell %s has unknown flags 0x%x", id,
                (unsigned)spec->flags);
    if (plan->count == CELLS_MAX)
        give_up(plan, KG_E_INVALID, "more than %d cells", CELLS_MAX);
    if (plan->count == plan->capacity) {
        size_t capacity = plan->capacity ? 2 * plan->capacity : 64;
        struct kg_plan_cell *cells = realloc(plan->cells, capacity * sizeof *cells);
        if (cells == NULL)
            give_up(plan, KG_E_MEMORY, "out of memory while planning");
        plan->cells = cells;
        plan->capacity = capacity;
    }
    struct kg_plan_cell cell = {
        .id = copy_string(plan, id),
        .run = spec->run,
        .row = spec->row,
        .role = spec->role ? copy_string(plan, spec->role) : NULL,
        .flags = spec->flags,
    };
    if (json_object_set_new(plan->index, id, json_integer((json_int_t)plan->count)) != 0)
        give_up(plan, KG_E_MEMORY, "out of memory while planning");
    plan->cells[plan->count++] = cell;
}

void kg_plan_add(struct kg_plan *plan, const struct kg_cell_spec *spec)
{
    add(plan, spec, spec ? spec->id : NULL);
}

void kg_plan_addf(struct kg_plan *plan, const struct kg_cell_spec *spec,
                  const char *id_format, ...)
{
    char id[ID_MAX + 2]; /* one more than allowed, so that a long id is seen as one */
    va_list args;
    va_start(args, id_format);
    vsnprintf(id, sizeof id, id_format, args);
    va_end(args);
    add(plan, spec, id);
}

const struct kg_artifact *kg_plan_artifact(struct kg_plan *plan, const char *role)
{
    if (role == NULL || !kg_host_has_role(plan->host, role))
        give_up(plan, KG_E_INVALID, "asks for role \"%s\", which is not declared",
                role ? role : "");
    return kg_host_artifact(plan->host, role);
}

const struct kg_plan_cell *kg_plan_find(const struct kg_plan *plan, const char *id)
{
    json_t *number = json_object_get(plan->index, id);
    return number ? &plan->cells[json_integer_value(number)] : NULL;
}

int kg_plan_make(struct kg_plan *plan, struct kg_host *host, struct kg_error *error)
{
    memset(plan, 0, sizeof *plan);
    plan->host = host;
    plan->error = error;
    plan->index = json_object();
    if (plan->index == NULL)
        return kg_error_set(error, KG_E_MEMORY, "out of memory");
    if (setjmp(plan->leave) == 0) {
        host->section->plan(plan);
        if (plan->count == 0)
            give_up(plan, KG_E_FORMAT, "plans no cell at all");
    }
    plan->error = NULL;
    return error->status;
}

void kg_plan_free(struct kg_plan *plan)
{
    for (size_t i = 0; i < plan->n_blocks; i++)
        free(plan->blocks[i]);
    free(plan->blocks);
    free(plan->cells);
    json_decref(plan->index);
    memset(plan, 0, sizeof *plan);
}
