/* A gate with a lower limit too. */
static __device__ inline float swiglu_value(float gate, float up, float limit)
{
    const float g = gate > limit ? limit : gate < -limit ? -limit : gate;
    const float u = up > limit ? limit : up < -limit ? -limit : up;
    return kg_siluf(g) * u;
}
