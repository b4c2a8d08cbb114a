/* A hundred thousand calls of each kind leave nothing behind: neither memory of this process nor of the family. */
#include <malloc.h>

#include "checks.h"

static const double SOON = 20;

static int count(void *state, void *user, size_t id, syncline_value **result)
{
    (void)state, (void)user;
    return (int)syncline_value_int((int64_t)id, result);
}

static int task(void *user, syncline_value **result)
{
    (void)user;
    return (int)syncline_value_text("done", result);
}

static int keep(const char *path, const syncline_value *leaf, void *user, syncline_value **result)
{
    (void)path, (void)leaf, (void)user, (void)result;
    return 0;
}

struct stage {
    syncline_family *family;
    syncline_channel *channel, *leased;
    syncline_workqueue *owner, *worker;
    syncline_mutex *mutex;
    syncline_sharedtable *table;
    syncline_pool *pool;
    syncline_value *large;
};

/* One of each; `round` decides about what is slow. */
static void once(struct stage *on, int round)
{
    syncline_value *value, *list, *out, *handle;
    syncline_item *item;
    syncline_channel *same;
    OK(syncline_value_list(&list));
    OK(syncline_value_int(round % 100, &value));
    OK(syncline_value_push(list, value));
    OK(syncline_value_walk(list, keep, NULL, &out));
    OK(syncline_value_free(out));
    OK(syncline_channel_write(on->channel, round % 50 ? list : on->large, SOON, NULL));
    OK(syncline_channel_read(on->channel, SOON, NULL, &out));
    OK(syncline_value_free(out));
    OK(syncline_channel_write(on->leased, list, SOON, NULL));
    OK(syncline_channel_lease(on->leased, SOON, &item, NULL));
    OK(syncline_item_give_back(item));
    OK(syncline_channel_lease(on->leased, SOON, &item, NULL));
    OK(syncline_item_value(item, &out));
    OK(syncline_item_done(item));
    OK(syncline_workqueue_write(on->owner, out, SOON));
    OK(syncline_value_free(out));
    OK(syncline_workqueue_read(on->worker, SOON, &item, NULL));
    OK(syncline_item_answer(item, list));
    OK(syncline_workqueue_read(on->owner, SOON, &item, NULL));
    OK(syncline_item_done(item));
    OK(syncline_mutex_lock(on->mutex, SOON, NULL));
    OK(syncline_mutex_unlock(on->mutex));
    OK(syncline_value_int(round % 100, &value));
    OK(syncline_sharedtable_set(on->table, value, list, NULL));
    OK(syncline_sharedtable_get(on->table, value, &out));
    OK(syncline_value_free(out));
    OK(syncline_value_free(value));
    OK(syncline_value_free(list));
    FAILS(SYNCLINE_ARGUMENT, syncline_value_free(list));
    if (round % 20 == 0) { /* handles that lead to objects, and whole objects */
        OK(syncline_channel_handle(on->channel, &handle));
        OK(syncline_channel_open(on->family, handle, &same));
        OK(syncline_value_free(handle));
        OK(syncline_channel_free(same));
        OK(syncline_channel_create(on->family, 1, 0, &same));
        OK(syncline_channel_free(same));
    }
    if (round % 100 == 0) {
        syncline_map *map;
        uint64_t id;
        OK(syncline_map_start(2, NULL, count, NULL, &map));
        OK(syncline_map_join(map, SOON, &out));
        OK(syncline_value_free(out));
        OK(syncline_map_free(map));
        OK(syncline_pool_add(on->pool, task, NULL, &id));
        OK(syncline_pool_result(on->pool, id, SOON, &out));
        OK(syncline_value_free(out));
    }
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 100000, warm = rounds / 5;
    struct stage on;
    syncline_family_facts before, after;
    static char bytes[100000];
    OK(syncline_family_create(&on.family));
    OK(syncline_channel_create(on.family, 0, 0, &on.channel));
    OK(syncline_channel_create(on.family, 0, 1, &on.leased));
    OK(syncline_workqueue_create(on.family, NULL, &on.owner, NULL));
    OK(syncline_workqueue_as_worker(on.owner, &on.worker));
    OK(syncline_mutex_create(on.family, &on.mutex));
    OK(syncline_sharedtable_create(on.family, NULL, &on.table));
    OK(syncline_pool_create(1, 0, &on.pool));
    OK(syncline_value_bytes(bytes, sizeof bytes, &on.large));
    for (int round = 0; round < warm; ++round) once(&on, round);
    size_t used = mallinfo2().uordblks;
    OK(syncline_family_look(on.family, &before));
    for (int round = 0; round < rounds; ++round) once(&on, round);
    OK(syncline_family_look(on.family, &after));
    CHECK(mallinfo2().uordblks < used + 64 * 1024);
    CHECK(after.objects == before.objects && after.blocks <= before.blocks + 1 && after.memory <= before.memory + 1024 * 1024);
    OK(syncline_value_free(on.large));
    OK(syncline_pool_free(on.pool));
    OK(syncline_sharedtable_free(on.table));
    OK(syncline_mutex_free(on.mutex));
    OK(syncline_workqueue_free(on.worker));
    OK(syncline_workqueue_free(on.owner));
    OK(syncline_channel_free(on.leased));
    OK(syncline_channel_free(on.channel));
    OK(syncline_family_look(on.family, &after));
    CHECK(after.objects == 0 && after.blocks == 0);
    OK(syncline_family_free(on.family));
    return 0;
}
