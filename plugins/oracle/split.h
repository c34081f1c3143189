/*
 * split.h: what the block decoders share inside the oracle; not for plugins.
 */
#ifndef KGATE_ORACLE_SPLIT_H
#define KGATE_ORACLE_SPLIT_H

#include <stdint.h>

#include "plugins/oracle/oracle.h"

/* Little-endian half at p, widened; exact. */
double kg_oracle_half(const uint8_t *p);

/* Splitters, one per block type: see struct kg_oracle_split. */
void kg_oracle_split_q4_0(const uint8_t *src, struct kg_oracle_split *out);
void kg_oracle_split_q4_1(const uint8_t *src, struct kg_oracle_split *out);
void kg_oracle_split_q5_0(const uint8_t *src, struct kg_oracle_split *out);
void kg_oracle_split_q5_1(const uint8_t *src, struct kg_oracle_split *out);
void kg_oracle_split_q8_0(const uint8_t *src, struct kg_oracle_split *out);
void kg_oracle_split_iq4_nl(const uint8_t *src, struct kg_oracle_split *out);
void kg_oracle_split_mxfp4(const uint8_t *src, struct kg_oracle_split *out);
void kg_oracle_split_nvfp4(const uint8_t *src, struct kg_oracle_split *out);
void kg_oracle_split_q2_k(const uint8_t *src, struct kg_oracle_split *out);
void kg_oracle_split_q3_k(const uint8_t *src, struct kg_oracle_split *out);
void kg_oracle_split_q4_k(const uint8_t *src, struct kg_oracle_split *out);
void kg_oracle_split_q5_k(const uint8_t *src, struct kg_oracle_split *out);
void kg_oracle_split_q6_k(const uint8_t *src, struct kg_oracle_split *out);
void kg_oracle_split_iq3_s(const uint8_t *src, struct kg_oracle_split *out);
void kg_oracle_split_iq4_xs(const uint8_t *src, struct kg_oracle_split *out);

/* The sixteen levels of IQ4_NL and IQ4_XS. */
extern const int8_t kg_oracle_iq4_levels[16];
/* See iq3s_codes.c. */
extern const uint16_t kg_oracle_iq3s_codes[512];

#endif
