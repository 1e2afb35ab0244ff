/* builtin.c: the models that are part of the binary. Their files are those of examples/models/, put in by the assembler. */
#include "model/builtin.h"

#include <string.h>

#include "base/embed.h"

KVS_EMBED(kvs_austen_config, "examples/models/austen/config.json");
KVS_EMBED(kvs_austen_weights, "examples/models/austen/model.safetensors");
KVS_EMBED(kvs_austen_vocab, "examples/models/austen/vocab.json");
KVS_EMBED(kvs_austen_merges, "examples/models/austen/merges.txt");
KVS_EMBED(kvs_reverse_config, "examples/models/reverse/config.json");
KVS_EMBED(kvs_reverse_weights, "examples/models/reverse/model.safetensors");
KVS_EMBED(kvs_reverse_vocab, "examples/models/reverse/vocab.json");
KVS_EMBED(kvs_reverse_merges, "examples/models/reverse/merges.txt");

#define FILES 4

static const char *const file_names[FILES] = {"config.json", "model.safetensors", "vocab.json", "merges.txt"};

static const struct entry {
  kvs_builtin builtin;
  struct {
    const unsigned char *begin, *end;
  } file[FILES];
} entries[] = {
    {{"austen", "English prose, from the novels of Jane Austen: shows what a fault does to text",
      "It is a truth universally acknowledged"},
     {{kvs_austen_config, kvs_austen_config_end},
      {kvs_austen_weights, kvs_austen_weights_end},
      {kvs_austen_vocab, kvs_austen_vocab_end},
      {kvs_austen_merges, kvs_austen_merges_end}}},
    {{"reverse", "spells a word of 3 to 14 small letters backwards after '>': a fault is a plainly wrong answer",
      "position>"},
     {{kvs_reverse_config, kvs_reverse_config_end},
      {kvs_reverse_weights, kvs_reverse_weights_end},
      {kvs_reverse_vocab, kvs_reverse_vocab_end},
      {kvs_reverse_merges, kvs_reverse_merges_end}}},
};

const kvs_builtin *kvs_builtin_at(int i) {
  return i >= 0 && i < (int)(sizeof entries / sizeof *entries) ? &entries[i].builtin : NULL;
}

const kvs_builtin *kvs_builtin_find(const char *name) {
  for (int i = 0; kvs_builtin_at(i); i++)
    if (strcmp(kvs_builtin_at(i)->name, name) == 0) return kvs_builtin_at(i);
  return NULL;
}

bool kvs_builtin_file(const kvs_builtin *builtin, int i, kvs_file *out) {
  const struct entry *entry = (const struct entry *)builtin; /* its first member */
  if (i < 0 || i >= FILES) return false;
  *out = (kvs_file){file_names[i], entry->file[i].begin, (size_t)(entry->file[i].end - entry->file[i].begin)};
  return true;
}
