/* A job of several: what every rank adds is in the table once, trees give everybody the same. */
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"

static int add(void *mine, const void *received, size_t count, void *user)
{
    (void)user;
    for (size_t i = 0; i < count; ++i) ((int32_t *)mine)[i] += ((const int32_t *)received)[i];
    return 0;
}

int main(void)
{
    syncline_session *session;
    syncline_place me;
    OK(syncline_open(1, 20, &session)); /* in sync mode */
    OK(syncline_where(session, &me));
    float workers = (float)me.num_workers;

    enum { SIZE = 1000 };
    float start[SIZE], delta[SIZE], got[SIZE];
    for (int i = 0; i < SIZE; ++i) start[i] = me.worker_id == 0 ? 5 : 77, delta[i] = (float)(i + 1);
    syncline_table *array;
    OK(syncline_array_create(session, SIZE, NULL, start, SIZE, &array));
    for (int round = 1; round <= 20; ++round) {
        OK(syncline_table_add(array, delta, SIZE, NULL, 0));
        OK(syncline_table_add(array, delta, SIZE, NULL, 0));
        OK(syncline_table_get(array, got, SIZE));
        for (int i = 0; i < SIZE; ++i) CHECK(got[i] == 5 + (float)(i + 1) * (float)round * 2 * workers);
    }

    int32_t numbers[3] = {me.worker_id + 1, 10, 0};
    uint32_t contributors;
    syncline_tree *tree;
    OK(syncline_tree_of(session, &tree));
    OK(syncline_tree_all_reduce_with(tree, numbers, 3, SYNCLINE_INT32, add, NULL, &contributors));
    int32_t sum = me.num_workers * (me.num_workers + 1) / 2;
    CHECK(numbers[0] == sum && numbers[1] == 10 * me.num_workers && contributors == (uint32_t)me.num_workers);

    /* Uneven ends: node k calls k times, then once more to join the others. */
    double mine = 0, total = 0;
    for (int call = 0; call <= me.worker_id; ++call) {
        mine = me.worker_id + 1;
        OK(syncline_tree_all_reduce(tree, &mine, 1, SYNCLINE_FLOAT64, SYNCLINE_SUM, NULL));
        total += mine;
    }
    OK(syncline_tree_all_reduce_rest(tree, &mine, 1, SYNCLINE_FLOAT64, SYNCLINE_SUM));
    if (me.num_workers == 3) CHECK(total == (me.worker_id == 0 ? 6 : me.worker_id == 1 ? 11 : 14));

    int32_t own[2] = {me.worker_id, -me.worker_id}, all[64], part[64];
    size_t have;
    OK(syncline_tree_all_gather(tree, own, 2, SYNCLINE_INT32, all, 2 * (size_t)me.num_workers));
    for (int node = 0; node < me.num_workers; ++node) CHECK(all[2 * node] == node && all[2 * node + 1] == -node);
    OK(syncline_tree_gather(tree, own, 2, SYNCLINE_INT32, 1, me.worker_id == 0 ? all : NULL, me.worker_id == 0 ? 2 * (size_t)me.num_workers : 0));
    OK(syncline_tree_reduce_scatter(tree, all, 4, SYNCLINE_INT32, SYNCLINE_MAX, part, 64, &have));
    OK(syncline_tree_all_to_all(tree, all, part, 1, SYNCLINE_INT32));
    own[0] = me.worker_id == 1 ? 42 : 0;
    OK(syncline_tree_broadcast(tree, own, 2, SYNCLINE_INT32, 2));
    CHECK(own[0] == 42);

    /* A forked child is no member: it is told so, and harms nobody. */
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(syncline_table_get(array, got, SIZE) == SYNCLINE_FORKED && syncline_barrier(session) == SYNCLINE_FORKED ? 0 : 1);
    int ended = -1;
    CHECK(waitpid(child, &ended, 0) == child && ended == 0);

    /* A sum without servers, and a call that differs between ranks. */
    double loss = me.rank;
    OK(syncline_aggregate(session, &loss, 1, SYNCLINE_FLOAT64, SYNCLINE_SUM));
    CHECK(loss == me.size * (me.size - 1) / 2);
    SYNCLINE_HERE();
    FAILS(SYNCLINE_CONTRACT_MISMATCH,
          syncline_tree_all_reduce(tree, all, me.worker_id == 0 ? 3 : 4, SYNCLINE_INT32, SYNCLINE_SUM, NULL));
    CHECK(strstr(syncline_last_error(), "job.c:") != NULL);
    OK(syncline_tree_barrier(tree));

    OK(syncline_tree_close(tree));
    OK(syncline_table_free(array));
    OK(syncline_barrier(session));
    OK(syncline_close(session));
    return 0;
}
