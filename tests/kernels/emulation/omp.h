/* What the attention kernels use of OpenMP. See threads.c. */

int omp_get_thread_num(void);
