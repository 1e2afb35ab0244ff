/* sql_serve.h (private): what the drive does for the state's questions in SQL. */
#ifndef KVS_TUI_SQL_SERVE_H
#define KVS_TUI_SQL_SERVE_H

#include "tui/state.h"

struct drive;

/* Carries out a request that begins with REQUEST_SQL; of others, nothing. */
void sql_serve(struct drive *drive, enum request request);

#endif
