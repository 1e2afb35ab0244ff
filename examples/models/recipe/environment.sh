# Settings for fast training on one core; use with ". ./environment.sh".
# One thread per process: two trainings can then run side by side.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# Keep freed memory for the next tensor instead of handing it back to the system.
export MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=4294967296
# Element-wise operations: torch uses AVX2 unless told otherwise.
if grep -qs avx512f /proc/cpuinfo; then export ATEN_CPU_CAPABILITY=avx512; fi
