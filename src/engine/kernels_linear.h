/* kernels_linear.h: y = b + x·W, the part of kernels_vector.h (which includes it) that nearly all the time goes into: one row of x
 * while the weights stream past, and many rows in tiles. */

/* ---- one row of x: the weights stream past once --------------------------------------------------------------------- */

#define STREAMS 8 /* rows of w that are read side by side */

/* Vectors of columns that are done together: two lines of a row, as far as registers go. */
#define GROUP(dtype) ((dtype) == KVS_F32 || GROUP_MOST * WIDTH < 64 ? 32 / WIDTH : 64 / WIDTH)

/* `vecs` vectors of a block's sums, with `count` ≤ STREAMS rows of w, the first of which lies at `w`. Two lines of each row are
 * read together. 16-bit rows pass so fast that the CPU's own foresight fails: the rows after these are asked for. `begins`: these
 * are the block's first rows. `columns` < WIDTH: fewer than one vector. */
INLINE void add_columns(float *sums, const vec *x_i, const char *w, size_t below, kvs_dtype dtype, int count, int vecs,
                        int columns, bool begins) {
  vec sum[GROUP_MOST];
#pragma GCC unroll 8
  for (int g = 0; g < vecs; g++) sum[g] = begins ? v_zero() : load_some(sums, KVS_F32, (size_t)(g * WIDTH), columns);
#pragma GCC unroll 8
  for (int u = 0; u < count; u++) {
#pragma GCC unroll 8
    for (int g = 0; g < vecs; g++) sum[g] = v_fma(x_i[u], load_some(w, dtype, (size_t)(g * WIDTH), columns), sum[g]);
    if (dtype != KVS_F32)
      for (int line = 0; line < vecs * WIDTH * 2; line += 64) __builtin_prefetch(w + STREAMS * below + line, 0, 2);
    w += below;
  }
#pragma GCC unroll 8
  for (int g = 0; g < vecs; g++)
    if (columns >= WIDTH)
      v_store(sums + g * WIDTH, sum[g]);
    else
      v_store_some(sums + g * WIDTH, sum[g], columns);
}

/* `count` rows of w from row i on. */
INLINE void add_rows(float *sums, const float *x, const kvs_tensor *w, kvs_dtype dtype, int i, int count, int begin,
                     int end, bool begins) {
  const size_t size = dtype == KVS_F32 ? 4 : 2;
  const int group = GROUP(dtype);
  size_t below = (size_t)w->cols * size;
  const char *at = (const char *)w->data + (size_t)i * below + (size_t)begin * size;
  vec x_i[STREAMS];
#pragma GCC unroll 8
  for (int u = 0; u < STREAMS; u++) x_i[u] = u < count ? v_set(x[i + u]) : v_zero();
  int j = begin;
  for (; j + group * WIDTH <= end; j += group * WIDTH, at += (size_t)(group * WIDTH) * size)
    add_columns(sums + j, x_i, at, below, dtype, count, group, WIDTH, begins);
  for (; j + WIDTH <= end; j += WIDTH, at += WIDTH * size)
    add_columns(sums + j, x_i, at, below, dtype, count, 1, WIDTH, begins);
  if (j < end) add_columns(sums + j, x_i, at, below, dtype, count, 1, end - j, begins);
}

INLINE void block_sums_of(float *sums, const float *x, const kvs_tensor *w, kvs_dtype dtype, int first, int last,
                          int begin, int end) {
  int rows = last * KVS_BLOCK < w->rows ? last * KVS_BLOCK : w->rows;
  for (int i = first * KVS_BLOCK; i < rows; i += STREAMS) {
    float *block = sums + (size_t)(i / KVS_BLOCK) * (size_t)w->cols;
    if (rows - i < STREAMS)
      add_rows(block, x, w, dtype, i, rows - i, begin, end, i % KVS_BLOCK == 0);
    else if (i % KVS_BLOCK == 0)
      add_rows(block, x, w, dtype, i, STREAMS, begin, end, true);
    else
      add_rows(block, x, w, dtype, i, STREAMS, begin, end, false);
  }
}

static void block_sums(float *sums, const float *x, const kvs_tensor *w, int first, int last, int begin, int end) {
  if (w->dtype == KVS_F32)
    block_sums_of(sums, x, w, KVS_F32, first, last, begin, end);
  else if (w->dtype == KVS_F16)
    block_sums_of(sums, x, w, KVS_F16, first, last, begin, end);
  else
    block_sums_of(sums, x, w, KVS_BF16, first, last, begin, end);
}

static void add_blocks(float *y, const float *bias, const float *sums, int blocks, int cols, int begin, int end) {
  for (int j = begin; j < end; j += WIDTH) {
    int n = end - j < WIDTH ? end - j : WIDTH;
    vec sum = load_some(bias, KVS_F32, (size_t)j, n);
    for (int b = 0; b < blocks; b++)
      sum = v_add(sum, load_some(sums, KVS_F32, (size_t)b * (size_t)cols + (size_t)j, n));
    v_store_some(y + j, sum, n);
  }
}

/* ---- linear, many rows of x: tiles of y in registers ---------------------------------------------------------------- */

/* Parts of x and w that are used again and again are copied close together first: PACK_ROWS rows of x, PACK_DEPTH long, which
 * stay in the second-level cache, and PANEL columns of w, as deep, which stay in the first. A row of x gets some room
 * after it, so that rows do not all fall on the same lines of the cache. */
#define PANEL (TILE_VECS * WIDTH)
#define PACK_DEPTH (6 * KVS_BLOCK)
#define PACK_STRIDE (PACK_DEPTH + 16)
#define PACK_ROWS 512
_Static_assert(PACK_ROWS *PACK_STRIDE + PACK_DEPTH * PANEL <= KVS_PACK_FLOATS, "no room for packing");

/* to[i][0 … PANEL) = w[first + i][j …), widened; columns past `columns` are 0. */
INLINE void pack_panel_of(float *to, const kvs_tensor *w, kvs_dtype dtype, int first, int depth, int j, int columns) {
  for (int i = 0; i < depth; i++) {
    size_t from = (size_t)(first + i) * (size_t)w->cols + (size_t)j;
    for (int c = 0; c < TILE_VECS; c++)
      v_store(to + i * PANEL + c * WIDTH, load_some(w->data, dtype, from + (size_t)(c * WIDTH), columns - c * WIDTH));
  }
}

static void pack_panel(float *to, const kvs_tensor *w, int first, int depth, int j, int columns) {
  if (w->dtype == KVS_F32)
    pack_panel_of(to, w, KVS_F32, first, depth, j, columns);
  else if (w->dtype == KVS_F16)
    pack_panel_of(to, w, KVS_F16, first, depth, j, columns);
  else
    pack_panel_of(to, w, KVS_BF16, first, depth, j, columns);
}

/* A tile of y, or what it is so far: [rows][columns]. */
typedef struct place {
  float *at;
  size_t stride;
} place;

/* to = from + x · w for one block; `rows` is a constant after inlining, so the sums are registers. */
INLINE void tile_block(place to, place from, const float *x, const float *w, int rows, int depth, int columns) {
  vec sum[TILE_ROWS][TILE_VECS];
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
    for (int c = 0; c < TILE_VECS; c++) sum[r][c] = v_zero();
  for (int i = 0; i < depth; i++) {
    vec w_i[TILE_VECS];
#pragma GCC unroll 4
    for (int c = 0; c < TILE_VECS; c++) w_i[c] = v_load(w + i * PANEL + c * WIDTH);
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
      vec x_i = v_set(x[r * PACK_STRIDE + i]);
#pragma GCC unroll 4
      for (int c = 0; c < TILE_VECS; c++) sum[r][c] = v_fma(x_i, w_i[c], sum[r][c]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < rows; r++, from.at += from.stride, to.at += to.stride)
#pragma GCC unroll 4
    for (int c = 0; c < TILE_VECS; c++) {
      const float *begin = from.at + c * WIDTH;
      float *end = to.at + c * WIDTH;
      int n = columns - c * WIDTH;
      if (columns == PANEL || n >= WIDTH)
        v_store(end, v_add(v_load(begin), sum[r][c]));
      else if (n > 0)
        v_store_some(end, v_add(v_load_some(begin, n), sum[r][c]), n);
    }
}

/* The same for all blocks that are packed. Between them the sums so far wait in a place of their own: rows of y may lie apart
 * by such a power of two that a tile of them does not stay in the first-level cache. */
INLINE void tile(place y, place from, const float *x, const float *w, int rows, int depth, int columns) {
  float near[TILE_ROWS * PANEL] __attribute__((aligned(64)));
  const place between = {near, PANEL};
  const float *row = y.at;
#pragma GCC unroll 1
  for (int r = 0; r < rows; r++, row += y.stride)
    for (int l = 0; l < PANEL; l += 16) __builtin_prefetch(row + l, 1);
  for (int i = 0; i < depth; i += KVS_BLOCK) {
    bool last = i + KVS_BLOCK >= depth;
    tile_block(last ? y : between, i == 0 ? from : between, x + i, w + i * PANEL, rows, last ? depth - i : KVS_BLOCK,
               columns);
  }
}

/* A last, lower tile. */
static void low_tile(place y, place from, const float *x, const float *w, int rows, int depth, int columns) {
  switch (rows) {
#define ROWS(n)                                                                                                        \
  case n:                                                                                                              \
    if (n <= TILE_ROWS) tile(y, from, x, w, n, depth, columns);                                                        \
    break;
    ROWS(1)
    ROWS(2)
    ROWS(3)
    ROWS(4)
    ROWS(5)
#if TILE_ROWS > 6
    ROWS(6) ROWS(7) ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12) ROWS(13)
#endif
#undef ROWS
  }
}

/* All packed rows of x with one panel of w. The panel that comes next is asked for little by little meanwhile. */
static void multiply_panel(place y, place from, const float *x, const float *w, int rows, int depth, int columns,
                           const char *next, size_t next_stride, int next_bytes) {
  int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS, lines = (depth + tiles - 1) / tiles;
  for (; rows > 0; rows -= TILE_ROWS, x += TILE_ROWS * PACK_STRIDE) {
#pragma GCC unroll 1
    for (int i = 0; i < lines; i++, next += next_stride)
      for (int l = 0; l < next_bytes; l += 64) __builtin_prefetch(next + l, 0, 2);
    if (rows >= TILE_ROWS)
      tile(y, from, x, w, TILE_ROWS, depth, columns);
    else
      low_tile(y, from, x, w, rows, depth, columns);
    y.at += TILE_ROWS * y.stride, from.at += TILE_ROWS * from.stride;
  }
}

static void linear_many(float *y, const float *x, int rows, const kvs_linear *linear, int begin, int end, float *pack) {
  const kvs_tensor *w = &linear->w;
  size_t n_in = (size_t)w->rows, n_out = (size_t)w->cols;
  float *panel = pack + PACK_ROWS * PACK_STRIDE;
  size_t size = w->dtype == KVS_F32 ? 4 : 2;
  for (int first = 0; first < w->rows; first += PACK_DEPTH) {
    int depth = w->rows - first < PACK_DEPTH ? w->rows - first : PACK_DEPTH;
    for (int r = 0; r < rows; r++)
      memcpy(pack + r * PACK_STRIDE, x + (size_t)r * n_in + first, (size_t)depth * sizeof(float));
    for (int j = begin; j < end; j += PANEL) {
      int columns = end - j < PANEL ? end - j : PANEL;
      place to = {y + j, n_out}, bias = {(float *)linear->b + j, 0};
      pack_panel(panel, w, first, depth, j, columns);
      bool more = j + PANEL < end;
      size_t next =
          more ? (size_t)first * n_out + (size_t)(j + PANEL) : (size_t)(first + depth) * n_out + (size_t)begin;
      multiply_panel(to, first == 0 ? bias : to, pack, panel, rows, depth, columns, (const char *)w->data + next * size,
                     n_out * size, PANEL * (int)size);
    }
  }
}

static void linear(float *y, const float *x, int rows, const kvs_linear *linear, int begin, int end, float *pack) {
  for (int r = 0; r < rows; r += PACK_ROWS)
    linear_many(y + (size_t)r * (size_t)linear->w.cols, x + (size_t)r * (size_t)linear->w.rows,
                rows - r < PACK_ROWS ? rows - r : PACK_ROWS, linear, begin, end, pack);
}
