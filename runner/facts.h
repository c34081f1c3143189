/*
 * runner/facts.h: what a result says of the machine and the source it came from.
 */
#ifndef KG_RUNNER_FACTS_H
#define KG_RUNNER_FACTS_H

#include <jansson.h>
#include <stdbool.h>

/* {"name", "kernel", "cpu", "cores", "memory_bytes"}; what is not known is left out. */
json_t *kg_facts_host(void);
/* {"commit", "dirty"} of the source: asked of git where `source_root` is a checkout, else
   what the build was told; {} where nobody knows. */
json_t *kg_facts_git(const char *source_root);
/* KGATE_* only: the rest of the environment may hold secrets. */
json_t *kg_facts_environment(void);
/* "20260101T120000Z" (compact) or "2026-01-01T12:00:00Z". */
void kg_facts_time(char *buffer, size_t size, bool compact);

#endif
