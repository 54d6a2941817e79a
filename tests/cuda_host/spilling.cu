/* spilling.cu - a kernel that must spill: 64 values live at once in the 32 registers that its bounds leave. check_spills.sh has to
 * find it. */
__global__ void __launch_bounds__(1024, 2) spilling_kernel(const float *x, float *y)
{
    float v[64];
#pragma unroll
    for (int i = 0; i < 64; i++)
        v[i] = x[1024 * i + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 64; i++)
        y[1024 * i + threadIdx.x] = v[63 - i] * v[i];
}
