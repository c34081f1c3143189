/*
 * runner/names.h: a hash table from names to numbers, for tensors and metadata keys.
 *
 * Open addressing over XXH3 with a random seed, so that a file cannot choose names that
 * collide. The table keeps pointers to the names; they must outlive it.
 */
#ifndef KG_RUNNER_NAMES_H
#define KG_RUNNER_NAMES_H

#include <stddef.h>
#include <stdint.h>

struct kg_name_slot {
    const char *name; /* NULL: free */
    uint32_t tag;     /* the upper half of the hash: most mismatches end here */
    uint32_t index;
};

struct kg_names {
    struct kg_name_slot *slots;
    size_t mask;  /* slots - 1, a power of two less one */
    size_t count; /* names held */
    uint64_t seed;
};

/* Room for `expected` names without growing. 0 or KG_E_MEMORY. */
int kg_names_init(struct kg_names *names, size_t expected);
void kg_names_free(struct kg_names *names);
/* Adds `name`. 0; KG_E_INVALID with *index set to the earlier number if it is there
   already; KG_E_MEMORY. */
int kg_names_add(struct kg_names *names, const char *name, uint32_t *index);
/* The number of `name`, or -1. */
int64_t kg_names_find(const struct kg_names *names, const char *name);

#endif
