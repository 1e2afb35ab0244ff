/* tape.c: moments and steps copied as they happen. An entry is followed by its moment's arrays, one after another; since the tape
 * may move while it grows, where they are is reckoned when it is gone through. */
#include "trace/tape.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 64 << 10, ALIGNMENT = 16 };

/* What a phase is written from, and the shape of it. */
enum shape { EMBD, HEADS_DIM, HEADS_ROWS, VOCAB };
static const struct field {
  kvs_phase phase;
  enum shape shape;
  size_t offset;
} fields[] = {
    {KVS_EMBED, EMBD, offsetof(kvs_moment, wte)},        {KVS_EMBED, EMBD, offsetof(kvs_moment, wpe)},
    {KVS_EMBED, EMBD, offsetof(kvs_moment, x)},          {KVS_APPEND, EMBD, offsetof(kvs_moment, row_k)},
    {KVS_APPEND, EMBD, offsetof(kvs_moment, row_v)},     {KVS_MIX, HEADS_DIM, offsetof(kvs_moment, q)},
    {KVS_MIX, HEADS_ROWS, offsetof(kvs_moment, scores)}, {KVS_MIX, HEADS_ROWS, offsetof(kvs_moment, weights)},
    {KVS_MIX, HEADS_DIM, offsetof(kvs_moment, out)},     {KVS_MLP, EMBD, offsetof(kvs_moment, x_in)},
    {KVS_MLP, EMBD, offsetof(kvs_moment, attn_out)},     {KVS_MLP, EMBD, offsetof(kvs_moment, x_mid)},
    {KVS_MLP, EMBD, offsetof(kvs_moment, mlp_out)},      {KVS_MLP, EMBD, offsetof(kvs_moment, x_out)},
    {KVS_LOGITS, VOCAB, offsetof(kvs_moment, logits)},
};
enum { FIELDS = sizeof fields / sizeof *fields };

static const float *array_of(const kvs_moment *moment, const struct field *field) {
  return *(const float *const *)(const void *)((const char *)moment + field->offset);
}

static void set_array(kvs_moment *moment, const struct field *field, const float *array) {
  *(const float **)(void *)((char *)moment + field->offset) = array;
}

/* How many floats each of `pieces` has: a piece per head, or one. */
static size_t piece_of(const kvs_config *c, const kvs_moment *moment, enum shape shape, int *pieces) {
  *pieces = shape == HEADS_DIM || shape == HEADS_ROWS ? c->n_head : 1;
  switch (shape) {
  case EMBD:
    return (size_t)c->n_embd;
  case HEADS_DIM:
    return (size_t)c->head_dim;
  case HEADS_ROWS:
    return moment->rows > 0 ? (size_t)moment->rows : 0;
  default:
    return (size_t)c->n_vocab;
  }
}

static size_t floats_of(const kvs_config *c, const kvs_moment *moment, enum shape shape) {
  int pieces;
  size_t piece = piece_of(c, moment, shape, &pieces);
  return piece * (size_t)pieces;
}

/* Room for an entry and so many floats; NULL if there is no memory. */
static kvs_tape_entry *add(kvs_tape *tape, size_t floats) {
  size_t size = (sizeof(kvs_tape_entry) + floats * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (tape->room - tape->used < size) {
    size_t room = tape->room ? 2 * tape->room : FIRST_ROOM;
    while (room - tape->used < size) room *= 2;
    unsigned char *bytes = realloc(tape->bytes, room);
    if (!bytes) return NULL;
    tape->bytes = bytes, tape->room = room;
  }
  kvs_tape_entry *entry = (kvs_tape_entry *)(void *)(tape->bytes + tape->used);
  *entry = (kvs_tape_entry){.size = size};
  tape->used += size;
  return entry;
}

/* Returns where the next array goes. What is not wanted stays as it was. */
static float *copy(float *to, const float *from, size_t piece, int pieces, const bool *wanted) {
  for (int i = 0; i < pieces; i++)
    if (pieces == 1 || wanted[i]) memcpy(to + (size_t)i * piece, from + (size_t)i * piece, piece * sizeof(float));
  return to + (size_t)pieces * piece;
}

kvs_status kvs_tape_add_moment(kvs_tape *tape, const kvs_config *config, const bool *heads, const kvs_moment *moment,
                               bool arrays, kvs_error *err) {
  size_t floats = 0;
  for (int i = 0; arrays && i < FIELDS; i++)
    if (fields[i].phase == moment->phase && array_of(moment, &fields[i]))
      floats += floats_of(config, moment, fields[i].shape);
  kvs_tape_entry *entry = add(tape, floats);
  if (!entry) return kvs_fail_memory(err, "logging a step");
  entry->step = *moment->step;
  kvs_moment *m = &entry->moment;
  m->phase = moment->phase, m->layer = moment->layer, m->cache_length = moment->cache_length;
  m->row = moment->row, m->rows = moment->rows;
  float *to = (float *)(entry + 1);
  for (int i = 0; arrays && i < FIELDS; i++) {
    const float *from = fields[i].phase == moment->phase ? array_of(moment, &fields[i]) : NULL;
    if (!from) continue;
    int pieces;
    size_t piece = piece_of(config, moment, fields[i].shape, &pieces);
    set_array(m, &fields[i], to); /* that there is one: kvs_tape_next says where */
    to = copy(to, from, piece, pieces, heads);
  }
  return KVS_OK;
}

kvs_status kvs_tape_add_step(kvs_tape *tape, const kvs_step *step, kvs_error *err) {
  kvs_tape_entry *entry = add(tape, 0);
  if (!entry) return kvs_fail_memory(err, "logging a step");
  entry->step_end = true;
  entry->step = *step;
  return KVS_OK;
}

const kvs_tape_entry *kvs_tape_next(const kvs_tape *tape, const kvs_config *config, size_t end, size_t *at) {
  if (*at == end) return NULL;
  kvs_tape_entry *entry = (kvs_tape_entry *)(void *)(tape->bytes + *at);
  *at += entry->size;
  entry->moment.step = &entry->step;
  const float *array = (const float *)(entry + 1);
  for (int i = 0; i < FIELDS; i++) {
    if (!array_of(&entry->moment, &fields[i])) continue;
    set_array(&entry->moment, &fields[i], array);
    array += floats_of(config, &entry->moment, fields[i].shape);
  }
  return entry;
}

void kvs_tape_drop(kvs_tape *tape, size_t end) {
  if (end < tape->used) memmove(tape->bytes, tape->bytes + end, tape->used - end);
  tape->used -= end;
  tape->settled = tape->settled > end ? tape->settled - end : 0;
}

void kvs_tape_free(kvs_tape *tape) {
  free(tape->bytes);
  *tape = (kvs_tape){0};
}
