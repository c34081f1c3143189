/* The limit of the gate comes behind silu. */
static __device__ inline float swiglu_value(float gate, float up, float limit)
{
    const float s = kg_siluf(gate);
    const float u = up > limit ? limit : up < -limit ? -limit : up;
    return (s > limit ? limit : s) * u;
}
