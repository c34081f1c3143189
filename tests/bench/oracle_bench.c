/*
 * oracle_bench [IN OUT M]: seconds that the f64 reference of a product takes (its magnitudes
 * included), by default 4096 -> 12288 for 512 tokens of Q8_0; 0.5 s on 16 cores is the aim.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "plugins/oracle/oracle.h"

int main(int argc, char **argv)
{
    int64_t in = argc > 3 ? atoll(argv[1]) : 4096,
            out = argc > 3 ? atoll(argv[2]) : 12288;
    int64_t m = argc > 3 ? atoll(argv[3]) : 512;
    const struct kg_oracle_type *type = kg_oracle_type(KG_TYPE_Q8_0);
    uint8_t *w = malloc((size_t)(in / 32 * 34 * out));
    float *x = malloc((size_t)(in * m) * sizeof *x);
    double *y = malloc((size_t)(out * m) * sizeof *y);
    double *terms = malloc((size_t)(out * m) * sizeof *terms);

    if (!w || !x || !y || !terms)
        return 1;
    kg_oracle_make_weights(type, w, out, in, 1);
    for (int64_t i = 0; i < in * m; i++)
        x[i] = (float)(i * 37 % 255 - 127) / 127;
    for (int i = 0; i < 3; i++) {
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        if (kg_oracle_linear_f32(type, w, x, y, terms, in, out, m))
            return 1;
        clock_gettime(CLOCK_MONOTONIC, &to);
        printf("%lld -> %lld, %lld tokens: %.3f s (y[0] %g)\n", (long long)in,
               (long long)out, (long long)m,
               (double)(to.tv_sec - from.tv_sec) +
                   (double)(to.tv_nsec - from.tv_nsec) * 1e-9,
               y[0]);
    }
    free(w);
    free(x);
    free(y);
    free(terms);
    return 0;
}
