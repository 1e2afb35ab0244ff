/* random.h: the same random numbers on every machine, for tests that try many things: a failure repeats. */
#ifndef KVS_TESTS_RANDOM_H
#define KVS_TESTS_RANDOM_H

#include <stdint.h>

/* The seed, and where the numbers are; each test program has its own. */
static uint64_t random_state = 1;

/* One of 0 .. n − 1, n ≥ 1, by SplitMix64 (Steele, Lea and Flood 2014). */
static inline int random_below(int n) {
  uint64_t z = random_state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (int)((z ^ (z >> 31)) % (uint64_t)n);
}

#endif
