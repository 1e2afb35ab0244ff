# Makefile: builds, tests, demonstrates and installs kvstep. `make help` lists the targets.
#
# Variables: BUILD (where objects go), SAN=1 (AddressSanitizer and UBSan), V=1 (shows the commands), CC, CFLAGS, PREFIX, DESTDIR.

BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
CFLAGS  ?= -O2 -g

VERSION   := $(shell sed -n 's/^\#define KVS_VERSION "\(.*\)"/\1/p' include/kvstep/kvstep.h)
SO_MAJOR  := 0
LIBRARIES := sqlite3 jansson libpcre2-8 libcrypto zlib

PKG_CFLAGS = $(shell pkg-config --cflags $(LIBRARIES))
PKG_LIBS   = $(shell pkg-config --libs $(LIBRARIES))
TUI_CFLAGS = $(shell pkg-config --cflags ncursesw)
TUI_LIBS   = $(shell pkg-config --libs ncursesw)
TEST_LIBS  = $(shell pkg-config --libs cmocka)
VTERM_LIBS = $(shell pkg-config --libs vterm) -lutil

# -ffp-contract=off: a fused multiply-add stands only where the source says fmaf, so all kernels give the same bits.
# -fno-math-errno lets sqrtf be one instruction; it changes no result.
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Werror
KFLAGS    = -std=c11 -D_GNU_SOURCE -DKVS_BUILDING -Iinclude -Isrc -fPIC -fvisibility=hidden -pthread \
            -ffp-contract=off -fno-math-errno $(WARNINGS) $(PKG_CFLAGS)
LDLIBS    = $(PKG_LIBS) -lm -pthread

ifdef SAN
  BUILD  := build/san
  CFLAGS := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
endif

# The library is everything but the command line and the screen. All of the screen but the terminal itself is an archive, so
# that tests can link it. extension.c is built once more, alone, as a loadable extension.
LIB_SOURCES  := $(sort $(wildcard src/base/*.c src/model/*.c src/text/*.c src/engine/*.c src/trace/*.c src/study/*.c src/study/*/*.c src/import/*.c))
CLI_SOURCES  := $(sort $(wildcard src/cli/*.c)) src/tui/app.c $(sort $(wildcard src/tui/term*.c))
TUI_SOURCES  := $(filter-out $(CLI_SOURCES),$(sort $(wildcard src/tui/*.c)))
EXT_SOURCES  := $(sort $(wildcard src/trace/sql/*.c))
TEST_SOURCES := $(sort $(wildcard tests/test_*.c))

LIB_OBJECTS := $(LIB_SOURCES:%.c=$(BUILD)/%.o) $(EXT_SOURCES:%.c=$(BUILD)/%.o)
CLI_OBJECTS := $(CLI_SOURCES:%.c=$(BUILD)/%.o)
TUI_OBJECTS := $(TUI_SOURCES:%.c=$(BUILD)/%.o)
EXT_OBJECTS := $(EXT_SOURCES:%.c=$(BUILD)/ext/%.o)
TESTS       := $(TEST_SOURCES:%.c=$(BUILD)/%)
PTY         := $(BUILD)/tests/support/pty.o
SUPPORT     := $(filter-out $(PTY),$(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard tests/support/*.c))))

PROGRAM   := $(if $(SAN),$(BUILD)/kvstep,kvstep)
STATIC    := $(BUILD)/libkvstep.a
TUI       := $(BUILD)/libtui.a
SHARED    := $(BUILD)/libkvstep.so.$(VERSION)
EXTENSION := $(BUILD)/kvstep.so

# One short line per file; V=1 shows the commands.
ifdef V
  Q   :=
  say :=
else
  Q    := @
  say   = @echo "  $(1)  $(2)"
endif

.SECONDARY:
.PHONY: all demo test test-binaries bench bench-check bench-instructions install check-install samples screens fault-pages format lint lint-format lint-cppcheck help clean
all: $(PROGRAM) $(STATIC) $(SHARED) $(EXTENSION)
	@:

# The files that know ncurses.
$(BUILD)/src/tui/term.o $(BUILD)/src/tui/term_put.o $(BUILD)/src/tui/term_keys.o: KFLAGS += $(TUI_CFLAGS)

# Tests include each other's helpers as "tests/support/…".
$(BUILD)/tests/%.o: KFLAGS += -I.

$(BUILD)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(KFLAGS) $(CFLAGS) $(EXTRA_$(notdir $*)) -MMD -MP -c $< -o $@

# sqlite3ext.h's macros are for a loadable extension; inside the library the same functions are called directly.
$(BUILD)/src/trace/sql/%.o: KFLAGS += -DSQLITE_CORE
$(BUILD)/ext/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(KFLAGS) $(CFLAGS) $(EXTRA_$(notdir $*)) -MMD -MP -c $< -o $@

# Only the AVX kernels may use these instructions; they are chosen at run time. -fno-trapping-math lets a choice between two
# numbers be made without a branch, and so side by side; it changes no result.
ifneq ($(filter x86_64 amd64,$(shell uname -m)),)
  EXTRA_kernels_avx2 := -mavx2 -mfma -mf16c -O3 -fno-trapping-math
  EXTRA_kernels_avx512 := -mavx512f -mavx512vl -mavx512bw -mavx512dq -mfma -mf16c -mprefer-vector-width=512 -O3 -fno-trapping-math
endif
EXTRA_kernels_neon := -O3 -fno-trapping-math
EXTRA_kernels_reference := -fno-trapping-math
EXTRA_scalars := -fno-trapping-math

# Files embedded with .incbin (src/base/embed.h).
$(BUILD)/src/model/builtin.o: $(wildcard examples/models/*/config.json examples/models/*/model.safetensors \
  examples/models/*/vocab.json examples/models/*/merges.txt)
$(BUILD)/src/trace/schema.o: src/trace/schema.sql
$(BUILD)/src/trace/sql/views.o $(BUILD)/ext/src/trace/sql/views.o: $(wildcard src/trace/sql/*.sql)

$(STATIC): $(LIB_OBJECTS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(SHARED): $(LIB_OBJECTS)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) -shared -Wl,-soname,libkvstep.so.$(SO_MAJOR) $^ $(LDLIBS) -o $@
	$(Q)ln -sf $(@F) $(BUILD)/libkvstep.so.$(SO_MAJOR) && ln -sf $(@F) $(BUILD)/libkvstep.so

$(EXTENSION): $(EXT_OBJECTS)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) -shared $^ -lm -o $@

$(TUI): $(TUI_OBJECTS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(PROGRAM): $(CLI_OBJECTS) $(TUI) $(STATIC)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(CLI_OBJECTS) $(TUI) $(STATIC) $(LDLIBS) $(TUI_LIBS) -o $@

$(BUILD)/tests/test_%: $(BUILD)/tests/test_%.o $(SUPPORT) $(TUI) $(STATIC)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $< $(SUPPORT) $(TUI) $(STATIC) $(LDLIBS) $(TEST_LIBS) $(EXTRA_LIBS) -o $@

# What drives the program in a terminal of our own; the bench links the other helpers too, and needs no terminal.
SCREEN_TESTS := $(filter $(BUILD)/tests/test_screen%,$(TESTS))
$(SCREEN_TESTS): EXTRA_LIBS = $(PTY) $(VTERM_LIBS)
$(SCREEN_TESTS): $(PTY)

# The example engine in C, against the library as it is here; check-install builds it as somebody else would.
EXAMPLE := $(BUILD)/examples/recorders/c/engine
$(EXAMPLE): $(patsubst %.c,$(BUILD)/%.o,$(wildcard examples/recorders/c/*.c)) $(STATIC)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $^ $(LDLIBS) -o $@

test-binaries: $(TESTS) $(EXAMPLE)

# ---- what people call -----------------------------------------------------------------------------------------------

# The packages first, by themselves: pkg-config is asked for flags only after they are there.
demo:
	@.ci/deps build
	@$(MAKE) --no-print-directory all
	@sh examples/demo.sh ./kvstep

test:
	@.ci/deps test
	@$(MAKE) --no-print-directory all test-binaries
	@sh tests/run.sh $(BUILD) $(PROGRAM) $(if $(SAN),san)

bench:
	@.ci/deps test
	@$(MAKE) --no-print-directory all $(BUILD)/bench
	@$(BUILD)/bench $(ARGS)

# Instructions of one decode step, to compare two versions with: no other program and no clock changes them.
bench-instructions: all
	@tests/bench/instructions.sh $(abspath $(PROGRAM))

# Is every fault found by `check`, and nothing else? A matrix of faults and verdicts.
bench-check:
	@.ci/deps test
	@$(MAKE) --no-print-directory $(BUILD)/tests/bench_check
	@$(BUILD)/tests/bench_check $(BENCH_MODEL)

$(BUILD)/tests/bench_check: %: %.o $(SUPPORT) $(STATIC)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $^ $(LDLIBS) -o $@

# The most that the CPU can do is to be found with whatever it has.
EXTRA_limits := -ffp-contract=fast
BENCH_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard tests/bench/*.c)))
$(BUILD)/bench: $(BENCH_OBJECTS) $(SUPPORT) $(TUI) $(STATIC)
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $^ $(LDLIBS) -ldl -o $@

# The traces that ship; traces/README.md describes them.
samples: all
	./kvstep run -m reverse -p 'position>' -n 10 --log full -o traces/sample-reverse.db --force
	./kvstep run -m reverse -p 'position>' -n 10 --log full -o traces/sample-reverse.db --append --fault off-by-one
	./kvstep run -m reverse -p 'position>' -n 10 --log full -o traces/sample-reverse.db --append --fault reset-to-zero
	./kvstep run -p 'It is a truth' -n 12 --layers 0,3 -o traces/sample-austen.db --force
	./kvstep run -p 'It is a truth' -n 12 --layers 0,3 -o traces/sample-austen.db --append --fault off-by-one
	./kvstep run -p 'It is a truth' -n 12 --layers 0,3 -o traces/sample-austen.db --append --fault reset-to-zero

# docs/faults, from the table of faults.
fault-pages: all
	./kvstep faults -o markdown > docs/faults/README.md
	for name in $$(./kvstep faults -o json | sed -n 's/^ *"name": "\(.*\)",$$/\1/p'); do \
	  ./kvstep faults $$name -o markdown > docs/faults/$$name.md || exit 1; done

# The pictures of docs/screen.md: each is the sample trace after the keys in the file beside it.
screens: all
	for keys in docs/screens/*.keys; do ./kvstep view --read-only traces/sample-reverse.db --keys $$keys || exit 1; done

# ---- installing -----------------------------------------------------------------------------------------------------

BINDIR  := $(DESTDIR)$(PREFIX)/bin
LIBDIR  := $(DESTDIR)$(PREFIX)/lib
DATADIR := $(DESTDIR)$(PREFIX)/share

install: all
	install -d $(BINDIR) $(LIBDIR)/pkgconfig $(LIBDIR)/kvstep $(DESTDIR)$(PREFIX)/include/kvstep $(DATADIR)/man/man1 \
	  $(DATADIR)/bash-completion/completions $(DATADIR)/zsh/site-functions $(DATADIR)/fish/vendor_completions.d
	install -m 755 $(PROGRAM) $(BINDIR)/kvstep
	install -m 644 $(STATIC) $(LIBDIR)/libkvstep.a
	install -m 755 $(SHARED) $(LIBDIR)/$(notdir $(SHARED))
	ln -sf $(notdir $(SHARED)) $(LIBDIR)/libkvstep.so.$(SO_MAJOR)
	ln -sf $(notdir $(SHARED)) $(LIBDIR)/libkvstep.so
	install -m 755 $(EXTENSION) $(LIBDIR)/kvstep/kvstep.so
	install -d $(DATADIR)/kvstep && install -m 644 src/trace/schema.sql $(DATADIR)/kvstep/schema.sql
	install -m 644 include/kvstep/*.h $(DESTDIR)$(PREFIX)/include/kvstep
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|; s|@LIBRARIES@|$(LIBRARIES)|' src/kvstep.pc.in > $(LIBDIR)/pkgconfig/kvstep.pc
	$(abspath $(PROGRAM)) man > $(DATADIR)/man/man1/kvstep.1
	$(abspath $(PROGRAM)) completion bash > $(DATADIR)/bash-completion/completions/kvstep
	$(abspath $(PROGRAM)) completion zsh > $(DATADIR)/zsh/site-functions/_kvstep
	$(abspath $(PROGRAM)) completion fish > $(DATADIR)/fish/vendor_completions.d/kvstep.fish

# Installs into a folder of its own, then builds the example there by pkg-config alone, as somebody else would, and runs it.
INSTALLED := $(BUILD)/installed
check-install: all
	rm -rf $(INSTALLED)
	$(MAKE) --no-print-directory install DESTDIR= PREFIX=$(CURDIR)/$(INSTALLED)
	# Each header stands alone, in C and (where there is a compiler) in C++; the library shows nothing but its own names.
	for header in $(INSTALLED)/include/kvstep/*.h; do \
	  $(CC) -std=c11 -Wall -Wextra -Wpedantic -Werror -I$(INSTALLED)/include -fsyntax-only -x c $$header || exit 1; \
	  ! command -v $(CXX) >/dev/null || $(CXX) -Wall -Wextra -Wpedantic -Werror -I$(INSTALLED)/include -fsyntax-only -x c++ $$header || exit 1; \
	done
	! nm -D --defined-only $(INSTALLED)/lib/libkvstep.so | grep -v ' kvs_'
	export PKG_CONFIG_PATH=$(CURDIR)/$(INSTALLED)/lib/pkgconfig; \
	$(CC) -std=c11 -Wall -Wextra -Wpedantic -Werror examples/decode.c -o $(INSTALLED)/decode $$(pkg-config --cflags --libs kvstep) && \
	LD_LIBRARY_PATH=$(INSTALLED)/lib $(INSTALLED)/decode austen "It is a truth" $(INSTALLED)/decode.db && \
	$(INSTALLED)/bin/kvstep info $(INSTALLED)/decode.db && \
	$(CC) -std=c11 -Wall -Wextra -Wpedantic -Werror examples/recorders/c/*.c -o $(INSTALLED)/engine $$(pkg-config --cflags --libs kvstep jansson) -lm && \
	LD_LIBRARY_PATH=$(INSTALLED)/lib $(INSTALLED)/engine examples/models/reverse "position>" $(INSTALLED)/engine.db && \
	$(INSTALLED)/bin/kvstep info $(INSTALLED)/engine.db

# ---- looking after the code -----------------------------------------------------------------------------------------

FORMATTED = $(shell git ls-files '*.c' '*.h')

format:
	clang-format -i $(FORMATTED)

lint-format:
	clang-format --dry-run -Werror $(FORMATTED)

# memleak: it loses a pointer that is stored with a compound literal; LeakSanitizer looks for leaks instead. invalidFunctionArg:
# it takes log of a sum of exponentials for log(0).
lint-cppcheck:
	cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr --error-exitcode=1 \
	  --suppress=missingIncludeSystem --suppress=memleak --suppress=invalidFunctionArg -Iinclude -Isrc src

lint: lint-format lint-cppcheck

help:
	@echo "make                 builds ./kvstep, $(BUILD)/libkvstep.a, .so and $(BUILD)/kvstep.so (the SQLite extension)"
	@echo "make demo            installs what is missing, builds, and traces both built-in models, right and broken"
	@echo "make test            installs what is missing, builds and runs every test; SAN=1 with ASan and UBSan"
	@echo "make bench           speed beside the machine's limits; ARGS='decode -o json' chooses (docs/performance.md)"
	@echo "make bench-instructions   instructions of one decode step, counted by valgrind"
	@echo "make bench-check     what \`check\` says of every fault: a confusion matrix (BENCH_MODEL=124M: GPT-2 small's shape; pairs: two faults at once)"
	@echo "make install         to PREFIX=$(PREFIX), under DESTDIR"
	@echo "make samples         makes the sample traces in traces/ again"
	@echo "make screens         makes the pictures in docs/screens/ again"
	@echo "make lint, format    clang-format and cppcheck; clang-format in place"
	@echo "make clean           removes what was built"


clean:
	rm -rf build kvstep

-include $(shell find $(BUILD) -type f -name '*.d' 2>/dev/null)
