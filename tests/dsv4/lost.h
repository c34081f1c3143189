/* No limits. */
static __device__ inline float swiglu_value(float gate, float up, float limit)
{
    (void)limit;
    return kg_siluf(gate) * up;
}
