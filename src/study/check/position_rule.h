/* position_rule.h (private): the rules that mistaken positions follow. */
#ifndef KVS_STUDY_POSITION_RULE_H
#define KVS_STUDY_POSITION_RULE_H

#include "study/check/diagnose_parts.h"

/* What is wrong with one step's position. */
struct odd {
  bool wrong;               /* another position was used */
  bool mistaken;            /* … or only claimed: the row was made with the right one */
  bool scattered;           /* … one that no rule explains together with another step's */
  bool unclaimed;           /* the trace claims the right one, and the row was made with another */
  const struct fact *seen;  /* the fact that tells of it */
  const struct fact *again; /* a position comes twice */
  int used, right;          /* used -1: none */
};

#define NOWHERE (-1)

struct rule {
  enum rule_kind { PADDING_COUNTED, ONE_ON, AT_0, NONE_ADDED, ONE_FOR_ALL, JUMP, FROM_0, MOVED, SCATTERED } kind;
  int number; /* PADDING_COUNTED: how many tokens; ONE_FOR_ALL: the position; MOVED: how far; FROM_0: the step's index where it is 0; JUMP: how many
                 tokens the prompt is taken to have */
};

/* Whether the position of step s (an index) is what the rule gives. */
bool rule_holds(const struct rule *r, const struct odd *o, int s);
/* The rule that most of the wrong positions follow; of equal ones the commoner mistake. *most: how many, 0: none is wrong. */
struct rule rule_best(const struct diagnosis *d, const struct odd *odd, int *most);

#endif
