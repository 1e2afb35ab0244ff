/* state_parts.h (private): what the files of the state share. */
#ifndef KVS_TUI_STATE_PARTS_H
#define KVS_TUI_STATE_PARTS_H

#include "tui/state.h"

/* `value`, or the end of low … high that it lies beyond; low where there is nothing between. */
int state_between(int value, int low, int high);

/* To another step, whole: its last moment. */
void state_go_to_step(struct state *state, const struct limits *limits, int step);

/* To another run, round and round. It keeps the step, so that two runs can be looked at in turn. */
void state_go_to_run(struct state *state, const struct limits *limits, long long run);

/* ---- state_dials.c ---- */

/* Moments, steps and playing; the other dials and the views. Each leaves alone what is not its own. */
void state_step_action(struct state *state, const struct limits *limits, enum action action);
void state_dial_action(struct state *state, const struct limits *limits, enum action action);

/* ---- state_line.c ---- */

void state_request_search(struct state *state, int direction);
void state_begin_line(struct state *state, enum input_mode mode);
void state_request_sql(struct state *state, const char *query);

/* Keys keep their editing meaning while a line is typed; the caller hands over their usual actions. */
void state_edit_action(struct state *state, const struct limits *limits, enum action action);

/* A prediction takes a number and nothing else, so that no dial moves under the question. */
void state_predict_action(struct state *state, enum action action);

/* ---- state_command.c ---- */

/* A whole number from `low` to `high`, or a message. */
bool state_read_number(struct state *state, const char *what, const char *text, int low, int high, int *number);

/* ---- state_live.c ---- */

/* Asks for tokens after the run's last one. `moments`: the first of them is then gone through moment by moment. */
void state_decode(struct state *state, const struct limits *limits, int tokens, bool moments);

/* e, f, and ^C while decoding. */
void state_live_action(struct state *state, const struct limits *limits, enum action action);

/* In the list of faults. */
void state_fault_action(struct state *state, const struct limits *limits, enum action action);

/* Enter on the line of a prompt. */
void state_accept_prompt(struct state *state, const struct limits *limits);

/* prompt TEXT, fault NAME, decode N. False: it is none of these. */
bool state_live_command(struct state *state, const struct limits *limits, const char *word, const char *rest);

#endif
