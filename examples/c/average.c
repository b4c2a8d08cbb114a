/* Every worker finds the slope of its own points; together they find the slope of all. Alone, or with
 *   syncline run -n 3 ./average */
#include <stdio.h>
#include <stdlib.h>

#include "syncline.h"

static void must(syncline_status status)
{
    if (status != SYNCLINE_OK) {
        fprintf(stderr, "%s: %s\n", syncline_status_name(status), syncline_last_error());
        exit(1);
    }
}

int main(void)
{
    syncline_session *session;
    syncline_place me;
    syncline_table *weights;
    float slope = 0;

    must(syncline_open(1, 0, &session)); /* in sync mode: a get waits for everybody's add */
    must(syncline_where(session, &me));
    must(syncline_array_create(session, 1, NULL, &slope, 1, &weights));
    for (int step = 0; step < 50; ++step) {
        float change = 0;
        for (int point = me.rank; point < 12; point += me.size) { /* y = 3 x, shared out among the workers */
            float x = (float)point / 12;
            change -= 0.1f * (slope * x - 3 * x) * x;
        }
        must(syncline_table_add_get(weights, &change, &slope, 1, NULL));
    }
    if (me.rank == 0) printf("%d workers: y = %.3f x\n", me.num_workers, slope);
    must(syncline_table_free(weights));
    must(syncline_close(session));
    return 0;
}
