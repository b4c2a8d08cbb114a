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

/* The larger of two numbers. */
static int larger(const syncline_value *mine, const syncline_value *received, void *user, syncline_value **result)
{
    int64_t a, b;
    (void)user;
    if (syncline_value_as_int(mine, &a) != SYNCLINE_OK || syncline_value_as_int(received, &b) != SYNCLINE_OK) return 1;
    return b > a ? (int)syncline_value_int(b, result) : 0; /* NULL keeps mine */
}

static int nothing(const syncline_value *leaf, size_t index, void *user, syncline_value **result)
{
    (void)leaf, (void)index, (void)user;
    return (int)syncline_value_int(0, result);
}

static int64_t taken(syncline_value *value)
{
    int64_t number;
    OK(syncline_value_as_int(value, &number));
    OK(syncline_value_free(value));
    return number;
}

/* Values of any kind through the tree of a job. */
static void nested(syncline_tree *tree, int worker, int workers)
{
    syncline_value *mine, *result, *item, *list;
    uint32_t contributors;
    OK(syncline_value_int(worker + 1, &mine));
    OK(syncline_tree_all_reduce_value(tree, mine, SYNCLINE_SUM, NULL, NULL, NULL, &result, &contributors));
    CHECK(taken(result) == workers * (workers + 1) / 2 && contributors == (uint32_t)workers);
    OK(syncline_tree_all_reduce_value(tree, mine, 0, larger, NULL, NULL, &result, &contributors));
    CHECK(taken(result) == workers);
    /* The last worker has no data left and joins the others' calls until they have none either. */
    for (int call = 0; call < 2 && worker + 1 < workers; ++call) {
        OK(syncline_tree_all_reduce_value(tree, mine, SYNCLINE_SUM, NULL, NULL, NULL, &result, &contributors));
        CHECK(taken(result) == workers * (workers - 1) / 2 && contributors == (uint32_t)workers - 1);
    }
    OK(syncline_tree_all_reduce_value(tree, NULL, SYNCLINE_SUM, NULL, nothing, NULL, &result, &contributors));
    CHECK(contributors == 0);
    OK(syncline_value_free(result));
    OK(syncline_tree_scatter(tree, worker == 0 ? mine : NULL, &result));
    CHECK(taken(result) == 1);
    OK(syncline_tree_gather_value(tree, mine, (uint32_t)workers, &result));
    CHECK((result != NULL) == (worker + 1 == workers));
    if (result != NULL) OK(syncline_value_free(result));
    OK(syncline_tree_all_gather_value(tree, mine, &list));
    OK(syncline_tree_all_to_all_value(tree, list, &result)); /* item i to node i + 1 */
    for (int from = 0; from < workers; ++from) {
        OK(syncline_value_item(result, (size_t)from, &item));
        CHECK(taken(item) == worker + 1);
    }
    OK(syncline_value_free(result));
    OK(syncline_value_free(list));
    OK(syncline_value_free(mine));

    /* While it is reduced, something else is done. */
    double numbers[100];
    syncline_reduction *reduction;
    for (int i = 0; i < 100; ++i) numbers[i] = i;
    OK(syncline_tree_all_reduce_start(tree, numbers, 100, SYNCLINE_FLOAT64, SYNCLINE_SUM, &reduction));
    OK(syncline_reduction_wait(reduction, 20, &contributors));
    CHECK(numbers[99] == 99 * workers && contributors == (uint32_t)workers);
    OK(syncline_reduction_free(reduction));
    OK(syncline_tree_reduce(tree, numbers, 100, SYNCLINE_FLOAT64, SYNCLINE_MAX, 1));
    size_t links;
    OK(syncline_tree_stats(tree, NULL, 0, &links)); /* on one host there are none */
}

/* Ranks of one host become a family: node 1 asks, the others answer. */
static void family(syncline_tree *tree, int worker, int workers)
{
    syncline_family *family = NULL;
    syncline_workqueue *queue;
    syncline_item *item;
    syncline_value *line, *value;
    char text[128] = "";
    const char *bytes;
    size_t size;
    int64_t sum = 0;
    if (worker == 0) {
        OK(syncline_family_create(&family));
        OK(syncline_family_invitation(family, text, sizeof text));
    }
    OK(syncline_value_text(text, &value));
    OK(syncline_tree_scatter(tree, value, &line));
    OK(syncline_value_free(value));
    OK(syncline_value_as_bytes(line, &bytes, &size));
    CHECK(size < sizeof text);
    memcpy(text, bytes, size), text[size] = 0;
    OK(syncline_value_free(line));
    if (worker != 0) OK(syncline_family_accept(text, &family));
    if (worker == 0) OK(syncline_workqueue_create(family, "doubles", &queue, NULL));
    OK(syncline_tree_barrier(tree)); /* whoever makes a queue owns it */
    if (worker != 0) OK(syncline_workqueue_create(family, "doubles", &queue, NULL));
    OK(syncline_tree_barrier(tree)); /* and the name is free again once all have left it */
    if (worker == 0) {
        for (int i = 1; i <= 100; ++i) {
            OK(syncline_value_int(i, &value));
            OK(syncline_workqueue_write(queue, value, 20));
            OK(syncline_value_free(value));
        }
        OK(syncline_workqueue_close(queue));
    }
    for (; worker != 0 || workers > 1;) {
        OK(syncline_workqueue_read(queue, 20, &item, NULL));
        if (item == NULL) break;
        OK(syncline_item_value(item, &value));
        int64_t number = taken(value);
        if (worker == 0) {
            sum += number;
            OK(syncline_item_done(item));
        } else {
            OK(syncline_value_int(2 * number, &value));
            OK(syncline_item_answer(item, value));
            OK(syncline_value_free(value));
        }
    }
    if (worker == 0 && workers > 1) CHECK(sum == 100 * 101);
    OK(syncline_workqueue_free(queue));
    OK(syncline_family_free(family));
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

    nested(tree, me.worker_id, me.num_workers);
    family(tree, me.worker_id, me.num_workers);
    /* Another length than the root's is refused here, and the tree goes on. */
    float short_one[2];
    if (me.worker_id == 0) OK(syncline_tree_broadcast(tree, got, 3, SYNCLINE_FLOAT32, 1));
    else FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_tree_broadcast(tree, short_one, 2, SYNCLINE_FLOAT32, 1));

    /* A forked child is no member: it is told so, and harms nobody. */
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        /* Another program ends it well: valgrind would look for leaks here, and what the threads held that a fork leaves behind seems lost. */
        if (syncline_table_get(array, got, SIZE) == SYNCLINE_FORKED && syncline_barrier(session) == SYNCLINE_FORKED) execlp("true", "true", (char *)NULL);
        _exit(1);
    }
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
