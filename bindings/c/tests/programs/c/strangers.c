/* What no caller should pass to the calls of families, maps, tasks, programs and nested values. */
#include "checks.h"
#include <time.h>

static uint64_t seed = 11;

static uint64_t chance(void)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}

static void *freed, *other;

/* A pointer that is no handle of the kind: NULL, small, random, freed, or of another kind. */
static void *strange(void)
{
    switch (chance() % 5) {
    case 0: return NULL;
    case 1: return (void *)(uintptr_t)(chance() % 64);
    case 2: return (void *)(uintptr_t)chance();
    case 3: return freed;
    default: return other;
    }
}

#define REFUSED(call) CHECK((call) == SYNCLINE_ARGUMENT)

static int never(void *state, void *user, size_t id, syncline_value **result)
{
    (void)state, (void)user, (void)id, (void)result;
    return 1;
}

static int nonsense(void *state, void *user, size_t id, syncline_value **result)
{
    (void)state, (void)user, (void)id;
    *result = (syncline_value *)(uintptr_t)0xdead; /* no value of ours */
    return 0;
}

static int task(void *user, syncline_value **result)
{
    *result = user;
    return 0;
}

static int publish(const char *host, uint16_t port, void *user)
{
    (void)host, (void)port, (void)user;
    return 7;
}

static int query(char *host, size_t room, uint16_t *port, void *user)
{
    (void)user, (void)port;
    memset(host, 'x', room); /* no closing zero, no port */
    return -1;
}

static int visit(const char *path, const syncline_value *leaf, void *user, syncline_value **result)
{
    (void)path;
    *result = (syncline_value *)leaf; /* gives back what was lent */
    return *(int *)user;
}

/* Frees what it was lent, which is not its own. */
static int greedy(const syncline_value *mine, const syncline_value *received, void *user, syncline_value **result)
{
    (void)result, (void)user;
    syncline_value_free((syncline_value *)mine);
    syncline_value_free((syncline_value *)received);
    return 0;
}

static int greedy_zero(const syncline_value *leaf, size_t index, void *user, syncline_value **result)
{
    (void)index, (void)user, (void)result;
    return syncline_value_free((syncline_value *)leaf) == SYNCLINE_OK ? 0 : 1;
}

int main(void)
{
    syncline_family *family, *accepted;
    syncline_value *value, *out, *list;
    syncline_channel *channel;
    syncline_workqueue *queue;
    syncline_item *item;
    syncline_mutex *mutex;
    syncline_sharedtable *table;
    syncline_map *map;
    syncline_pool *pool;
    syncline_child *child;
    syncline_flock *lock;
    syncline_tree *tree;
    syncline_reduction *reduction;
    int32_t state;
    int over;
    char line[128];
    float numbers[4] = {1, 2, 3, 4};

    OK(syncline_family_create(&family));
    OK(syncline_value_int(5, &value));
    OK(syncline_value_nil(&out));
    freed = out, other = value;
    OK(syncline_value_free(out));

    REFUSED(syncline_family_create(NULL));
    REFUSED(syncline_family_invitation(family, NULL, 10));
    REFUSED(syncline_family_invitation(family, line, 0));
    REFUSED(syncline_family_accept(NULL, &accepted));
    FAILS(SYNCLINE_CONFIGURATION, syncline_family_accept("come in", &accepted));
    FAILS(SYNCLINE_CONFIGURATION, syncline_family_accept("syncline-family:-1:99999999999999999999:zz:1", &accepted));
    CHECK(syncline_family_accept("syncline-family:1:0:0:0", &accepted) != SYNCLINE_OK);
    OK(syncline_family_invitation(family, line, 8)); /* cut short */
    FAILS(SYNCLINE_CONFIGURATION, syncline_family_accept(line, &accepted));

    OK(syncline_channel_create(family, 0, 0, &channel));
    REFUSED(syncline_channel_create(family, 0, 0, NULL));
    syncline_channel *wide;
    if (syncline_channel_create(family, SIZE_MAX, 0, &wide) == SYNCLINE_OK) OK(syncline_channel_free(wide)); /* as many as memory holds */
    else CHECK(syncline_last_error_kind() != SYNCLINE_BUG);
    REFUSED(syncline_channel_write(channel, value, -1, &state));
    REFUSED(syncline_channel_write(channel, value, NAN, &state));
    REFUSED(syncline_channel_write(channel, value, INFINITY, &state));
    REFUSED(syncline_channel_write_all(channel, NULL, 3, 1, &state));
    const syncline_value *one[1] = {value};
    REFUSED(syncline_channel_write_all(channel, one, SIZE_MAX / 4, 1, &state));
    OK(syncline_channel_write_all(channel, NULL, 0, 1, &state));
    REFUSED(syncline_channel_read(channel, 1, &state, NULL));
    REFUSED(syncline_channel_try_read(channel, (int32_t *)((char *)&state + 1), &out));
    FAILS(SYNCLINE_CONFIGURATION, syncline_channel_lease(channel, 1, &item, &over)); /* it was made without */
    REFUSED(syncline_select(NULL, 0, 1, NULL, NULL, &out));
    REFUSED(syncline_select(NULL, 2, 1, NULL, NULL, &out));
    FAILS(SYNCLINE_CONFIGURATION, syncline_channel_open(family, value, &channel));
    OK(syncline_channel_handle(channel, &out));
    FAILS(SYNCLINE_CONFIGURATION, syncline_mutex_open(family, out, &mutex)); /* it leads to something else */
    FAILS(SYNCLINE_CONFIGURATION, syncline_workqueue_open(family, out, &queue));
    FAILS(SYNCLINE_CONFIGURATION, syncline_sharedtable_open(family, out, &table));
    syncline_family *strangers;
    OK(syncline_family_create(&strangers));
    FAILS(SYNCLINE_CONFIGURATION, syncline_channel_open(strangers, out, (syncline_channel **)&map));
    OK(syncline_family_free(strangers));
    OK(syncline_value_free(out));

    OK(syncline_workqueue_create(family, NULL, &queue, NULL));
    REFUSED(syncline_workqueue_create(family, "\xff", &queue, NULL));
    char longest[5000];
    memset(longest, 'q', sizeof longest - 1), longest[sizeof longest - 1] = 0;
    CHECK(syncline_workqueue_create(family, longest, (syncline_workqueue **)&out, NULL) != SYNCLINE_OK);
    REFUSED(syncline_workqueue_write(queue, freed, 1));
    REFUSED(syncline_workqueue_drain(queue, -1));
    FAILS(SYNCLINE_TIMEOUT, syncline_workqueue_read(queue, 0.01, &item, &over));
    OK(syncline_workqueue_close(queue));
    OK(syncline_workqueue_close(queue));
    FAILS(SYNCLINE_CLOSED, syncline_workqueue_write(queue, value, 1));

    /* An answer that cannot be sent leaves the question to somebody else. */
    syncline_workqueue *asks, *works;
    syncline_channel *theirs;
    OK(syncline_workqueue_create(family, NULL, &asks, NULL));
    OK(syncline_workqueue_as_worker(asks, &works));
    OK(syncline_workqueue_write(asks, value, 1));
    OK(syncline_workqueue_read(works, 1, &item, &over));
    REFUSED(syncline_item_answer(item, freed));
    OK(syncline_family_create(&strangers));
    OK(syncline_channel_create(strangers, 0, 0, &theirs));
    OK(syncline_channel_handle(theirs, &out));
    FAILS(SYNCLINE_CONFIGURATION, syncline_item_answer(item, out));
    OK(syncline_value_free(out));
    OK(syncline_channel_free(theirs));
    OK(syncline_family_free(strangers));
    OK(syncline_workqueue_read(works, 1, &item, &over));
    CHECK(item != NULL);
    OK(syncline_item_done(item));
    OK(syncline_workqueue_drain(asks, 1));
    OK(syncline_workqueue_free(works));
    OK(syncline_workqueue_free(asks));

    OK(syncline_mutex_create(family, &mutex));
    FAILS(SYNCLINE_CONFIGURATION, syncline_mutex_barrier(mutex, 0, 1));
    FAILS(SYNCLINE_CONFIGURATION, syncline_mutex_barrier(mutex, SIZE_MAX, 1));
    FAILS(SYNCLINE_CONFIGURATION, syncline_mutex_unlock(mutex));

    FAILS(SYNCLINE_CONFIGURATION, syncline_sharedtable_create(family, value, &table)); /* neither map nor list */
    OK(syncline_sharedtable_create(family, NULL, &table));
    OK(syncline_value_nil(&out));
    FAILS(SYNCLINE_CONFIGURATION, syncline_sharedtable_set(table, out, value, NULL));
    OK(syncline_value_free(out));

    REFUSED(syncline_map_start(2, NULL, NULL, NULL, &map));
    REFUSED(syncline_map_start(SIZE_MAX, NULL, never, NULL, &map));
    REFUSED(syncline_map_start(2, NULL, never, NULL, NULL));
    OK(syncline_map_start(0, NULL, never, NULL, &map));
    OK(syncline_map_join(map, 5, &out));
    OK(syncline_value_free(out));
    OK(syncline_map_free(map));
    OK(syncline_map_start(2, NULL, nonsense, NULL, &map));
    FAILS(SYNCLINE_CALLER, syncline_map_join(map, 5, &out));
    OK(syncline_map_free(map));

    REFUSED(syncline_pool_create(0, 0, &pool));
    REFUSED(syncline_pool_create(SIZE_MAX, 0, &pool));
    OK(syncline_pool_create(1, 0, &pool));
    REFUSED(syncline_pool_add(pool, NULL, NULL, NULL));
    FAILS(SYNCLINE_UNKNOWN_KEY, syncline_pool_look(pool, 9, &over, NULL));
    OK(syncline_pool_add(pool, task, freed, NULL)); /* leaves a handle that was freed */
    FAILS(SYNCLINE_CALLER, syncline_pool_result(pool, 1, 5, &out));
    OK(syncline_pool_free(pool));

    REFUSED(syncline_spawn(NULL, NULL, NULL, &child));
    const char *odd[] = {"no equals sign", NULL};
    REFUSED(syncline_spawn("true", NULL, odd, &child));
    if (can_spawn()) {
        OK(syncline_spawn("cat", NULL, NULL, &child));
        REFUSED(syncline_child_write(child, NULL, 5, 1));
        REFUSED(syncline_child_write(child, line, SIZE_MAX, 1));
        FAILS(SYNCLINE_CONFIGURATION, syncline_child_wait(child, "HUP", 1, NULL, NULL));
        OK(syncline_child_wait(child, "TERM", 5, NULL, NULL));
        FAILS(SYNCLINE_CLOSED, syncline_child_write(child, line, 1, 1));
        FAILS(SYNCLINE_CLOSED, syncline_child_read_all(child, 1, &out));
        OK(syncline_child_free(child));
    }
    REFUSED(syncline_flock_lock(NULL, 0, 0, &lock));
    REFUSED(syncline_flock_lock(line, 0, -3, &lock));

    syncline_tree_options hurry = {.timeout = 0.2};
    REFUSED(syncline_tree_discovered(1, 2, "127.0.0.1", 0, NULL, query, NULL, &hurry, &tree));
    REFUSED(syncline_tree_discovered(2, 2, "127.0.0.1", 0, publish, NULL, NULL, &hurry, &tree));
    REFUSED(syncline_tree_discovered(2, 2, NULL, 0, publish, query, NULL, &hurry, &tree));
    FAILS(SYNCLINE_CALLER, syncline_tree_discovered(2, 2, "127.0.0.1", 0, publish, query, NULL, &hurry, &tree));
    /* Who could not publish waits for nobody. */
    syncline_tree_options patient = {.timeout = 100};
    time_t began = time(NULL);
    FAILS(SYNCLINE_CALLER, syncline_tree_discovered(1, 2, "127.0.0.1", 0, publish, query, NULL, &patient, &tree));
    CHECK(time(NULL) - began < 20);
    OK(syncline_tree_null(&tree));
    REFUSED(syncline_tree_all_reduce_start(tree, NULL, 4, 0, 0, &reduction));
    REFUSED(syncline_tree_all_reduce_start(tree, numbers, SIZE_MAX, 0, 0, &reduction));
    OK(syncline_tree_all_reduce_start(tree, numbers, 4, 0, 0, &reduction));
    REFUSED(syncline_reduction_wait(reduction, -1, NULL));
    OK(syncline_reduction_free(reduction));
    FAILS(SYNCLINE_ARGUMENT, syncline_reduction_wait(reduction, 1, NULL));
    REFUSED(syncline_tree_reduce(tree, numbers, 4, 0, 0, 2));
    REFUSED(syncline_tree_all_to_all_value(tree, value, &out)); /* no list */
    OK(syncline_value_list(&list));
    FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_tree_all_to_all_value(tree, list, &out));
    REFUSED(syncline_tree_all_reduce_value(tree, NULL, 0, NULL, NULL, NULL, &out, NULL));
    REFUSED(syncline_tree_broadcast_value(tree, NULL, 1, &out));
    REFUSED(syncline_tree_gather_value(tree, value, 0, &out));
    syncline_value *pushed;
    OK(syncline_value_int(1, &pushed));
    OK(syncline_value_push(list, pushed));
    OK(syncline_tree_all_reduce_value(tree, list, 0, greedy, NULL, NULL, &out, NULL)); /* nobody to merge with */
    OK(syncline_value_free(out));
    FAILS(SYNCLINE_ARGUMENT, syncline_tree_all_reduce_value(tree, list, 0, NULL, greedy_zero, NULL, &out, NULL));
    OK(syncline_tree_close(tree));
    int code = 0;
    REFUSED(syncline_value_walk(list, NULL, NULL, &out));
    OK(syncline_value_walk(list, visit, &code, &out));
    OK(syncline_value_free(out));
    code = 9;
    FAILS(SYNCLINE_CALLER, syncline_value_walk(list, visit, &code, &out));
    OK(syncline_value_free(list));

    /* Handles that are none, by the thousand. */
    size_t count;
    uint64_t id;
    syncline_family_facts facts;
    syncline_workqueue_facts held;
    for (int round = 0; round < 3000; ++round) {
        REFUSED(syncline_family_invitation(strange(), line, sizeof line));
        REFUSED(syncline_family_look(strange(), &facts));
        REFUSED(syncline_family_free(strange()));
        REFUSED(syncline_channel_create(strange(), 0, 0, &theirs));
        REFUSED(syncline_channel_open(family, round % 2 ? freed : NULL, &theirs));
        REFUSED(syncline_channel_handle(strange(), &out));
        REFUSED(syncline_channel_write(strange(), value, 1, &state));
        REFUSED(syncline_channel_read(strange(), 1, &state, &out));
        REFUSED(syncline_channel_try_read(strange(), &state, &out));
        REFUSED(syncline_channel_read_many(strange(), 1, 1, &state, &out));
        REFUSED(syncline_channel_try_lease(strange(), &item, &over));
        REFUSED(syncline_channel_close(strange()));
        REFUSED(syncline_channel_look(strange(), &state, &count, &count));
        REFUSED(syncline_channel_free(strange()));
        REFUSED(syncline_workqueue_create(strange(), "name", &asks, NULL));
        REFUSED(syncline_workqueue_as_owner(strange(), &asks));
        REFUSED(syncline_workqueue_write(strange(), value, 1));
        REFUSED(syncline_workqueue_read(strange(), 1, &item, &over));
        REFUSED(syncline_workqueue_drain(strange(), 1));
        REFUSED(syncline_workqueue_close(strange()));
        REFUSED(syncline_workqueue_look(strange(), &held));
        REFUSED(syncline_workqueue_free(strange()));
        REFUSED(syncline_item_value(strange(), &out));
        REFUSED(syncline_item_look(strange(), &id, NULL, NULL));
        REFUSED(syncline_item_answer(strange(), value));
        REFUSED(syncline_item_give_back(strange()));
        REFUSED(syncline_item_done(strange()));
        REFUSED(syncline_mutex_lock(strange(), 1, &over));
        REFUSED(syncline_mutex_unlock(strange()));
        REFUSED(syncline_mutex_barrier(strange(), 1, 1));
        REFUSED(syncline_mutex_free(strange()));
        REFUSED(syncline_sharedtable_set(strange(), value, value, NULL));
        REFUSED(syncline_sharedtable_get(strange(), value, &out));
        REFUSED(syncline_sharedtable_pairs(strange(), &out));
        REFUSED(syncline_sharedtable_free(strange()));
        REFUSED(syncline_map_join(strange(), 1, &out));
        REFUSED(syncline_map_check_errors(strange()));
        REFUSED(syncline_map_free(strange()));
        REFUSED(syncline_pool_add(strange(), task, NULL, &id));
        REFUSED(syncline_pool_result(strange(), 1, 1, &out));
        REFUSED(syncline_pool_free(strange()));
        REFUSED(syncline_child_look(strange(), NULL, &over));
        REFUSED(syncline_child_read_line(strange(), 1, &out));
        REFUSED(syncline_child_wait(strange(), NULL, 1, NULL, NULL));
        REFUSED(syncline_child_free(strange()));
        REFUSED(syncline_flock_free(strange()));
        REFUSED(syncline_reduction_wait(strange(), 1, NULL));
        REFUSED(syncline_tree_stats(strange(), NULL, 0, &count));
        REFUSED(syncline_tree_scatter(strange(), value, &out));
    }

    OK(syncline_channel_free(channel));
    FAILS(SYNCLINE_ARGUMENT, syncline_channel_free(channel));
    FAILS(SYNCLINE_ARGUMENT, syncline_channel_write(channel, value, 1, &state));
    OK(syncline_workqueue_free(queue));
    OK(syncline_mutex_free(mutex));
    OK(syncline_sharedtable_free(table));
    OK(syncline_family_look(family, &facts));
    CHECK(facts.objects == 0); /* nothing that was refused has left something */
    OK(syncline_family_free(family));
    OK(syncline_value_free(value));
    return 0;
}
