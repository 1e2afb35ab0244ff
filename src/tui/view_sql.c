/* view_sql.c */
#include "tui/view.h"
static void draw(struct cells *cells, struct area area, const struct state *s, struct look *look) {
  (void)s, (void)look;
  draw_absent(cells, area, "", "");
}
const struct view view_sql = {"sql", "", draw};
