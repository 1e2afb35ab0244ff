/* embed.h: puts a file's bytes into the binary at build time, so that kvstep runs from any folder without files. */
#ifndef KVS_BASE_EMBED_H
#define KVS_BASE_EMBED_H

/* KVS_EMBED(name, "path/from/the/project's/root") defines name[] and name_end[]; the file's size is their difference.
 * 64-byte alignment, so that float data can be used where it lies. Whoever uses it lists the file as a prerequisite of
 * its object in the Makefile. */
#ifdef __APPLE__
#define KVS_EMBED_SECTION ".section __DATA,__const\n"
#define KVS_EMBED_NAME(name) "_" #name
#define KVS_EMBED_HIDDEN ".private_extern "
#else
#define KVS_EMBED_SECTION ".section .rodata\n"
#define KVS_EMBED_NAME(name) #name
#define KVS_EMBED_HIDDEN ".hidden "
#endif
/* Known to the linker, and not shown outside a shared library. */
#define KVS_EMBED_LABEL(name)                                                                                          \
  ".globl " KVS_EMBED_NAME(name) "\n" KVS_EMBED_HIDDEN KVS_EMBED_NAME(name) "\n" KVS_EMBED_NAME(name) ":\n"
#define KVS_EMBED(name, path)                                                                                          \
  __asm__(KVS_EMBED_SECTION ".balign 64\n" KVS_EMBED_LABEL(name) ".incbin \"" path "\"\n" KVS_EMBED_LABEL(             \
      name##_end) ".byte 0\n.text\n");                                                                                 \
  extern const unsigned char name[];                                                                                   \
  extern const unsigned char name##_end[]

#endif
