/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda-old: a libcuda.so.1 of a driver from before CUDA 11: it lacks functions.
 */
unsigned cuInit(unsigned flags);
unsigned cuDriverGetVersion(int *ret);

unsigned cuInit(unsigned flags)
{
    return 0;
}

unsigned cuDriverGetVersion(int *ret)
{
    *ret = 10020;
    return 0;
}
