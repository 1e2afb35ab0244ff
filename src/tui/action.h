/* action.h: what the screen can do. ONE table gives the enum, the key map, the help screen, the manual's key section and the names
 * that scripts and tests use. A row: identifier, name, keys (as action_key_name writes them, separated by blanks), group, help. */
#ifndef KVS_TUI_ACTION_H
#define KVS_TUI_ACTION_H

#include <stdbool.h>

#define ACTIONS(X)                                                                                                     \
  X(NEXT_MOMENT, "next-moment", "Space .", "Step",                                                                     \
    "the next moment of this step, then the next step; at the end it decodes one")                                     \
  X(PREVIOUS_MOMENT, "previous-moment", "b Backspace ,", "Step", "back by one moment: it un-happens")                  \
  X(NEXT_STEP, "next-step", "Right l", "Step", "the next token; after the last one it is decoded, with a model")       \
  X(PREVIOUS_STEP, "previous-step", "Left h", "Step", "the token before")                                              \
  X(FIRST_STEP, "first-step", "Home g", "Step", "the first token")                                                     \
  X(LAST_STEP, "last-step", "End G", "Step", "the last token; follows a trace that grows")                             \
  X(STEPS_FORWARD, "steps-forward", "PageDown C-f", "Step", "ten tokens on; after the last one ten are decoded")       \
  X(STEPS_BACK, "steps-back", "PageUp C-b", "Step", "ten tokens back")                                                 \
  X(PLAY, "play", "P", "Step", "play moment after moment, or stop")                                                    \
  X(FASTER, "faster", "+ =", "Step", "play faster")                                                                    \
  X(SLOWER, "slower", "- _", "Step", "play slower")                                                                    \
  X(NEXT_LAYER, "next-layer", "]", "Dials", "the next layer")                                                          \
  X(PREVIOUS_LAYER, "previous-layer", "[", "Dials", "the layer before")                                                \
  X(NEXT_HEAD, "next-head", "}", "Dials", "the next head")                                                             \
  X(PREVIOUS_HEAD, "previous-head", "{", "Dials", "the head before")                                                   \
  X(NEXT_RUN, "next-run", "r", "Dials", "the next run of this trace")                                                  \
  X(PREVIOUS_RUN, "previous-run", "R", "Dials", "the run before")                                                      \
  X(OTHER_RUN, "other-run", "o", "Dials", "compare with the next other run")                                           \
  X(ROW_DOWN, "row-down", "Down j", "Rows", "one cache row down")                                                      \
  X(ROW_UP, "row-up", "Up k", "Rows", "one cache row up")                                                              \
  X(VIEW_NEXT, "view-next", "Tab", "Views", "the next view")                                                           \
  X(VIEW_PREVIOUS, "view-previous", "S-Tab", "Views", "the view before")                                               \
  X(VIEW_1, "view-step", "1", "Views", "step: the nine moments of this token")                                         \
  X(VIEW_2, "view-cache", "2", "Views", "cache: the K and V rows of this layer")                                       \
  X(VIEW_3, "view-map", "3", "Views", "map: all steps × rows of this head")                                            \
  X(VIEW_4, "view-heads", "4", "Views", "heads: every layer × head in this step")                                      \
  X(VIEW_5, "view-product", "5", "Views", "q·k: the products that make one score")                                     \
  X(VIEW_6, "view-embedding", "6", "Views", "embedding: wte + wpe = x")                                                \
  X(VIEW_7, "view-next-token", "7", "Views", "next token: the 20 most probable")                                       \
  X(VIEW_8, "view-compare", "8", "Views", "compare: this run beside another one")                                      \
  X(VIEW_9, "view-sql", "9", "Views", "SQL: the answer to the last question")                                          \
  X(OTHER_FORM, "other-form", "w", "Views", "cache: whole rows or one head's part; next token: the logit lens alone")  \
  X(SEARCH, "search", "/", "Find", "search for a token's text")                                                        \
  X(SEARCH_NEXT, "search-next", "n", "Find", "the next match")                                                         \
  X(SEARCH_PREVIOUS, "search-previous", "N", "Find", "the match before")                                               \
  X(DIFFERENCE, "first-difference", "d", "Find", "the first step where this run differs from the other one")           \
  X(SQL, "sql", ";", "Find", "ask the trace in SQL; Up and Down bring earlier questions back")                         \
  X(SORT, "sort", "s", "Find", "SQL: sort by this column, again: the other way")                                       \
  X(PREDICT, "predict", "p", "Learn", "hide the next number, ask for it, then show it; Escape skips")                  \
  X(EDIT_PROMPT, "edit-prompt", "e", "Live", "edit the prompt: Enter decodes it as a new run")                         \
  X(CHOOSE_FAULT, "choose-fault", "f", "Live", "choose a fault: the same tokens once more, beside this run")           \
  X(COMMAND, "command", ":", "Other",                                                                                  \
    "a command: step 7, layer 2, head 1, row 5, run 2, prompt TEXT, fault NAME, decode 20, sql QUERY, save-screen "    \
    "FILE, quit; 7.2.1.5 is step 7, layer "                                                                            \
    "2, head 1, row 5")                                                                                                \
  X(HELP, "help", "? F1", "Other", "this help")                                                                        \
  X(REDRAW, "redraw", "C-l", "Other", "draw everything anew")                                                          \
  X(SUSPEND, "suspend", "C-z", "Other", "back to the shell; fg returns")                                               \
  X(CANCEL, "cancel", "Escape C-g C-c", "Other",                                                                       \
    "leave what is being typed, close the help, stop playing or decoding")                                             \
  X(ACCEPT, "accept", "Enter", "Other", "take what was typed; in heads: go into this head")                            \
  X(QUIT, "quit", "q", "Other", "leave kvstep")

enum action {
  ACTION_NONE,
#define ACTION_ENUM(id, name, keys, group, help) ACTION_##id,
  ACTIONS(ACTION_ENUM)
#undef ACTION_ENUM
      ACTION_COUNT
};

struct action_row {
  const char *name, *keys, *group, *help;
};

/* The row of an action other than ACTION_NONE. */
const struct action_row *action_row(enum action action);

/* The action of that name; ACTION_NONE if there is none. */
enum action action_named(const char *name);

/* Keys as the terminal layer hands them over: a Unicode code point, or one of these. */
enum key {
  KEYS_BASE = 0x110000,
  KEYS_LEFT,
  KEYS_RIGHT,
  KEYS_UP,
  KEYS_DOWN,
  KEYS_HOME,
  KEYS_END,
  KEYS_PAGE_UP,
  KEYS_PAGE_DOWN,
  KEYS_SHIFT_TAB,
  KEYS_DELETE,
  KEYS_F1,
  KEYS_RESIZE,
  KEYS_PASTE, /* what comes now was pasted, not typed; KEYS_PASTED: until here */
  KEYS_PASTED,
  KEYS_BYTE /* + 0x80 … 0xFF: a byte that is no UTF-8 */
};
#define KEYS_ESCAPE 0x1B
#define KEYS_ENTER 0x0D
#define KEYS_TAB 0x09
#define KEYS_BACKSPACE 0x7F

/* The key that a name stands for ("Left", "C-f", "Space", "a", "é"), 0 if none; and the other way round, into `name` [16]. */
int action_key(const char *name);
void action_key_name(int key, char *name);

/* What a key does when keys are not being typed into a line; ACTION_NONE if nothing. */
enum action action_for_key(int key);

#endif
