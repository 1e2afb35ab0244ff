/* sql_serve.c: carries out what the state asks of the trace in SQL: a question, an earlier one, words that may follow, another order,
 * and going to where a row of the answer points. */
#include "tui/sql_serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tui/drive.h"
#include "tui/sql_panel.h"

static void ask(struct drive *d, const char *query) {
  sql_panel_ask(d->sql, query);
  d->state.sql_row = d->state.sql_column = d->state.sql_sort = 0;
}

static void ask_example(struct drive *d) {
  const struct state *s = &d->state;
  char query[LINE_SIZE];
  sql_example_query(s->sql_row, s->run, s->step, s->layer, s->head, query, sizeof query);
  ask(d, query);
}

static void recall(struct drive *d) {
  struct state *s = &d->state;
  int at = s->sql_recalled + s->request_direction;
  if (at < 0) return;
  if (s->sql_recalled == 0) sql_panel_keep_draft(d->sql, s->line);
  const char *line = sql_panel_recall(d->sql, at);
  if (!line) {
    state_say(s, false, at == 1 ? "no question was asked before" : "this is the first question");
    return;
  }
  state_replace(s, 0, (int)strlen(s->line), line);
  s->sql_recalled = at;
}

/* One word is put in; of several what they have in common, and they are named. */
static void complete(struct drive *d) {
  struct state *s = &d->state;
  struct sql_words words;
  sql_complete(d->sql->db, s->line, s->cursor, &words);
  if (words.count == 0) state_say(s, false, "no table, column or word of SQL begins so");
  if (words.count > 0) state_replace(s, words.from, s->cursor, words.common);
  size_t used = 0;
  for (int i = 0; words.count > 1 && i < words.count && used + SQL_WORD + 3 < sizeof s->message; i++)
    used += (size_t)snprintf(s->message + used, sizeof s->message - used, "%s  ", words.word[i]);
  if (used) s->message_is_error = false;
  sql_words_free(&words);
}

/* Sets the dials that the row names. Run before step and step before row: each has the limits of those before it. */
static void jump(struct drive *d) {
  struct state *s = &d->state;
  static const char *const names[] = {"run", "step", "layer", "head", "row"};
  int *const dials[] = {&s->run, &s->step, &s->layer, &s->head, &s->row};
  char where[160] = "";
  for (int i = 0, number; i < 5; i++) {
    if (!sql_panel_dial(d->sql, s->sql_row, names[i], &number)) continue;
    if (i < 2) {
      s->row = -1;
      s->moment = KVS_LOGITS;
      s->following = false;
    }
    const int ends[] = {d->limits.runs, d->limits.steps - 1, d->limits.layers - 1, d->limits.heads - 1,
                        d->limits.rows - 1};
    int least = i == 0 ? 1 : 0; /* runs count from 1 */
    *dials[i] = number < least ? least : number < ends[i] ? number : ends[i];
    drive_settle(d);
    size_t used = strlen(where);
    snprintf(where + used, sizeof where - used, "%s%s %d", used ? ", " : "", names[i], *dials[i]);
  }
  if (s->row == d->limits.own) s->row = -1; /* as when the row cursor comes to it */
  if (!*where) {
    state_say(s, true, "this row has no column run, step, layer, head or row to go to");
    return;
  }
  s->view = VIEW_STEP;
  state_say(s, false, "%s: from row %d of the answer; 9 shows it again", where, s->sql_row + 1);
}

void sql_serve(struct drive *d, enum request request) {
  struct state *s = &d->state;
  if (request == REQUEST_SQL) ask(d, s->request_text);
  if (request == REQUEST_SQL_EXAMPLE) ask_example(d);
  if (request == REQUEST_SQL_RECALL) recall(d);
  if (request == REQUEST_SQL_COMPLETE) complete(d);
  if (request == REQUEST_SQL_JUMP) jump(d);
  if (request == REQUEST_SQL_SORT && !sql_panel_sort(d->sql, abs(s->sql_sort) - 1, s->sql_sort < 0))
    state_say(s, true, "out of memory while sorting");
}
