/* Rank 1 is killed; rank 0 hears who it was. */
#include <signal.h>

#include "checks.h"

int main(void)
{
    syncline_session *session;
    syncline_place me;
    OK(syncline_open(0, 20, &session));
    OK(syncline_where(session, &me));
    OK(syncline_barrier(session));
    if (me.rank == 1) raise(SIGKILL);
    FAILS(SYNCLINE_PEER_LOST, syncline_barrier(session));
    CHECK(syncline_last_error_rank() == 1 && syncline_last_error_pid() > 1 && syncline_last_error_host() != NULL);
    CHECK(strstr(syncline_last_error(), "rank 1") != NULL);
    printf("%s of rank 1 seen\n", syncline_status_name(syncline_last_error_kind()));
    fflush(stdout);
    OK(syncline_abort(session, "rank 1 is gone"));
    return 1;
}
