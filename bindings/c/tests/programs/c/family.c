/* What the threads and processes of a family share: channels, workqueues with leases, mutexes, tables; and what runs beside the
 * caller: maps, background tasks, programs. With an argument it is a worker that the first process has started. */
#include <signal.h>
#include <unistd.h>

#include "checks.h"

static const double SOON = 20;

static syncline_value *number(int64_t of)
{
    syncline_value *value;
    OK(syncline_value_int(of, &value));
    return value;
}

/* The number of a value, which is freed. */
static int64_t taken(syncline_value *value)
{
    int64_t is;
    OK(syncline_value_as_int(value, &is));
    OK(syncline_value_free(value));
    return is;
}

static int64_t number_of(syncline_item *item)
{
    syncline_value *value;
    OK(syncline_item_value(item, &value));
    return taken(value);
}

static void channels(syncline_family *family)
{
    syncline_channel *channel, *same, *narrow;
    syncline_value *items[3], *item, *handle;
    int32_t state, kind;
    size_t count, capacity;
    OK(syncline_channel_create(family, 0, 0, &channel));
    OK(syncline_channel_try_read(channel, &state, &item));
    CHECK(state == SYNCLINE_OPEN && item == NULL);
    for (int i = 0; i < 3; ++i) items[i] = number(10 + i);
    OK(syncline_channel_write_all(channel, (const syncline_value *const *)items, 3, SOON, &state));
    CHECK(state == SYNCLINE_OPEN);
    OK(syncline_channel_look(channel, &state, &count, &capacity));
    CHECK(count == 3 && capacity == 0);
    OK(syncline_channel_read(channel, SOON, &state, &item));
    CHECK(state == SYNCLINE_OPEN && taken(item) == 10);
    OK(syncline_channel_read_many(channel, 9, SOON, &state, &item));
    OK(syncline_value_what(item, NULL, &count));
    CHECK(count == 2);
    OK(syncline_value_free(item));
    FAILS(SYNCLINE_TIMEOUT, syncline_channel_read(channel, 0.01, &state, &item));

    /* Threads are given a tensor where it lies; once other processes may reach the channel, it is copied. */
    static double few[5000];
    const size_t extent[1] = {5000};
    const void *written, *read;
    syncline_value *tensor;
    OK(syncline_value_tensor(SYNCLINE_FLOAT64, extent, 1, few, &tensor));
    OK(syncline_value_as_tensor(tensor, NULL, NULL, NULL, &written));
    for (int reachable = 0; reachable < 2; ++reachable) {
        OK(syncline_channel_write(channel, tensor, SOON, NULL));
        OK(syncline_channel_read(channel, SOON, NULL, &item));
        OK(syncline_value_as_tensor(item, NULL, NULL, NULL, &read));
        CHECK((read == written) == !reachable);
        OK(syncline_value_free(item));
        OK(syncline_channel_handle(channel, &handle));
        OK(syncline_value_free(handle));
    }
    OK(syncline_value_free(tensor));

    /* Handles travel through channels, and lead to the same one. */
    OK(syncline_channel_create(family, 1, 0, &narrow));
    OK(syncline_channel_handle(channel, &handle));
    OK(syncline_value_what(handle, &kind, NULL));
    CHECK(kind == SYNCLINE_HANDLE);
    OK(syncline_channel_write(narrow, handle, SOON, &state));
    FAILS(SYNCLINE_TIMEOUT, syncline_channel_write(narrow, handle, 0.01, &state)); /* it is full */
    OK(syncline_value_free(handle));
    OK(syncline_channel_read(narrow, SOON, NULL, &handle));
    OK(syncline_channel_open(family, handle, &same));
    OK(syncline_value_free(handle));
    OK(syncline_channel_write(same, items[0], SOON, NULL));
    syncline_channel *both[2] = {narrow, channel};
    size_t which;
    OK(syncline_select(both, 2, SOON, &which, &state, &item));
    CHECK(which == 1 && taken(item) == 10);

    /* Large arrays are handed over. */
    static float numbers[40000];
    for (int i = 0; i < 40000; ++i) numbers[i] = (float)i;
    size_t dims[1] = {40000};
    const void *data;
    OK(syncline_value_tensor(SYNCLINE_FLOAT32, dims, 1, numbers, &item));
    OK(syncline_channel_write(channel, item, SOON, NULL));
    OK(syncline_value_free(item));
    OK(syncline_channel_close(channel));
    OK(syncline_channel_close(channel));
    OK(syncline_channel_write(channel, items[1], SOON, &state));
    CHECK(state == SYNCLINE_CHANNEL_CLOSED);
    OK(syncline_channel_read(channel, SOON, &state, &item));
    CHECK(state == SYNCLINE_CHANNEL_CLOSED);
    OK(syncline_value_as_tensor(item, NULL, NULL, NULL, &data));
    CHECK(memcmp(data, numbers, sizeof numbers) == 0);
    OK(syncline_channel_read(channel, SOON, &state, &handle));
    CHECK(state == SYNCLINE_DRAINED && handle == NULL);
    OK(syncline_channel_free(same));
    OK(syncline_channel_free(channel));
    OK(syncline_channel_free(narrow));
    CHECK(memcmp(data, numbers, sizeof numbers) == 0); /* the value keeps what it needs */
    OK(syncline_value_free(item));

    /* On a lease an item can be given back. */
    syncline_channel *leased;
    syncline_item *first, *again;
    uint32_t attempts;
    int over, is_leased;
    OK(syncline_channel_create(family, 0, 1, &leased));
    OK(syncline_channel_write(leased, items[2], SOON, NULL));
    OK(syncline_channel_lease(leased, SOON, &first, &over));
    OK(syncline_channel_try_lease(leased, &again, &over));
    CHECK(again == NULL && over == 0);
    OK(syncline_item_look(first, NULL, &attempts, &is_leased));
    CHECK(attempts == 0 && is_leased == 1);
    OK(syncline_item_give_back(first));
    FAILS(SYNCLINE_ARGUMENT, syncline_item_done(first));
    OK(syncline_channel_lease(leased, SOON, &again, &over));
    OK(syncline_item_look(again, NULL, &attempts, NULL));
    CHECK(attempts == 1 && number_of(again) == 12);
    OK(syncline_channel_close(leased));
    OK(syncline_item_done(again));
    OK(syncline_channel_lease(leased, SOON, &again, &over));
    CHECK(again == NULL && over == 1);
    OK(syncline_channel_free(leased));
    for (int i = 0; i < 3; ++i) OK(syncline_value_free(items[i]));
}

static void workqueues(syncline_family *family)
{
    syncline_workqueue *queue, *same, *worker;
    syncline_workqueue_facts facts;
    syncline_item *item;
    syncline_value *value;
    int made, over;
    uint64_t id;
    OK(syncline_workqueue_create(family, "squares", &queue, &made));
    CHECK(made == 1);
    OK(syncline_workqueue_create(family, "squares", &same, &made));
    CHECK(made == 0);
    OK(syncline_workqueue_as_worker(same, &worker));
    for (int i = 1; i <= 3; ++i) {
        OK(syncline_workqueue_write(queue, value = number(i), SOON));
        OK(syncline_value_free(value));
    }
    FAILS(SYNCLINE_CONFIGURATION, syncline_workqueue_drain(worker, SOON));
    FAILS(SYNCLINE_TIMEOUT, syncline_workqueue_drain(queue, 0.01));
    OK(syncline_workqueue_look(queue, &facts));
    CHECK(facts.owner == 1 && facts.questions == 3 && facts.unfinished == 3 && facts.closed == 0);
    for (int i = 1; i <= 3; ++i) {
        OK(syncline_workqueue_read(worker, SOON, &item, &over));
        int64_t question = number_of(item);
        CHECK(question == i && over == 0);
        OK(syncline_item_answer(item, value = number(question * question)));
        OK(syncline_value_free(value));
    }
    OK(syncline_workqueue_drain(queue, SOON));
    OK(syncline_workqueue_close(queue));
    value = number(4);
    FAILS(SYNCLINE_CLOSED, syncline_workqueue_write(queue, value, SOON));
    OK(syncline_value_free(value));
    OK(syncline_workqueue_read(worker, SOON, &item, &over));
    CHECK(item == NULL && over == 1);
    for (int i = 1; i <= 3; ++i) {
        OK(syncline_workqueue_read(queue, SOON, &item, &over));
        OK(syncline_item_look(item, &id, NULL, NULL));
        CHECK(number_of(item) == i * i && id == (uint64_t)i - 1);
        OK(syncline_item_done(item));
    }
    OK(syncline_workqueue_try_read(queue, &item, &over));
    CHECK(item == NULL && over == 1);
    OK(syncline_workqueue_free(worker));
    OK(syncline_workqueue_free(same));
    OK(syncline_workqueue_free(queue));
}

/* What the threads of a map share. */
struct shared {
    syncline_mutex *mutex;
    int counted, ready;
};

static int count_up(void *state, void *user, size_t id, syncline_value **result)
{
    struct shared *shared = user;
    CHECK(state == NULL && id >= 1 && id <= 4);
    OK(syncline_mutex_barrier(shared->mutex, 4, SOON));
    for (int i = 0; i < 100; ++i) {
        OK(syncline_mutex_lock(shared->mutex, SOON, NULL));
        OK(syncline_mutex_lock(shared->mutex, SOON, NULL)); /* again */
        shared->counted += 1;
        OK(syncline_mutex_unlock(shared->mutex));
        OK(syncline_mutex_unlock(shared->mutex));
    }
    OK(syncline_mutex_barrier(shared->mutex, 4, SOON));
    CHECK(shared->counted == 400);
    *result = number((int64_t)id);
    return 0;
}

static int give_state(void *user, void **state)
{
    *state = user;
    return 0;
}

static int fail_second(void *state, void *user, size_t id, syncline_value **result)
{
    CHECK(state == user);
    *result = number((int64_t)id); /* taken over even so */
    if (id != 2) return 0;
    syncline_value *none;
    return syncline_value_text(NULL, &none) == SYNCLINE_ARGUMENT ? 42 : 0;
}

static int unlock_strange(void *state, void *user, size_t id, syncline_value **result)
{
    (void)state, (void)id, (void)result;
    return syncline_mutex_unlock(user) == SYNCLINE_CONFIGURATION ? 0 : 1;
}

static int wait_for_news(void *state, void *user, size_t id, syncline_value **result)
{
    (void)state, (void)id;
    return syncline_channel_read(user, SOON, NULL, result) == SYNCLINE_OK ? 0 : 1;
}

static void maps_and_mutexes(syncline_family *family)
{
    struct shared shared = {.counted = 0};
    syncline_map *map;
    syncline_value *results, *item;
    size_t ended, of;
    int recovered;
    OK(syncline_mutex_create(family, &shared.mutex));
    OK(syncline_map_start(4, NULL, count_up, &shared, &map));
    OK(syncline_map_join(map, SOON, &results));
    for (size_t i = 0; i < 4; ++i) {
        OK(syncline_value_item(results, i, &item));
        CHECK(taken(item) == (int64_t)i + 1);
    }
    OK(syncline_value_free(results));
    OK(syncline_map_progress(map, &ended, &of));
    CHECK(ended == 4 && of == 4);
    OK(syncline_map_free(map));

    OK(syncline_mutex_lock(shared.mutex, SOON, &recovered));
    CHECK(recovered == 0);
    OK(syncline_map_start(1, NULL, unlock_strange, shared.mutex, &map));
    OK(syncline_map_join(map, SOON, &results));
    OK(syncline_value_free(results));
    OK(syncline_map_free(map));
    OK(syncline_mutex_unlock(shared.mutex));
    FAILS(SYNCLINE_CONFIGURATION, syncline_mutex_unlock(shared.mutex));
    FAILS(SYNCLINE_TIMEOUT, syncline_mutex_barrier(shared.mutex, 2, 0.01));
    OK(syncline_mutex_free(shared.mutex));

    OK(syncline_map_start(3, give_state, fail_second, &shared, &map));
    FAILS(SYNCLINE_CALLER, syncline_map_join(map, SOON, &results));
    CHECK(strstr(syncline_last_error(), "worker 2") && strstr(syncline_last_error(), "42") && strstr(syncline_last_error(), "text is NULL"));
    OK(syncline_map_check_errors(map)); /* told once */
    OK(syncline_map_free(map));

    syncline_channel *news;
    OK(syncline_channel_create(family, 0, 0, &news));
    OK(syncline_map_start(2, NULL, wait_for_news, news, &map));
    FAILS(SYNCLINE_TIMEOUT, syncline_map_join(map, 0.01, &results));
    OK(syncline_channel_close(news));
    OK(syncline_map_join(map, SOON, &results));
    OK(syncline_value_free(results));
    OK(syncline_map_free(map));
    OK(syncline_channel_free(news));
}

static int square(void *user, syncline_value **result)
{
    int64_t of = (int64_t)(intptr_t)user;
    if (of % 8 == 1) return 3;
    *result = number(of * of);
    return 0;
}

static void background(void)
{
    syncline_pool *pool;
    syncline_value *result;
    uint64_t id;
    int done, has;
    OK(syncline_pool_create(4, 0, &pool));
    for (intptr_t i = 1; i <= 20; ++i) {
        OK(syncline_pool_add(pool, square, (void *)i, &id));
        CHECK(id == (uint64_t)i);
    }
    for (uint64_t i = 1; i <= 20; ++i) {
        if (i % 8 == 1) {
            FAILS(SYNCLINE_CALLER, syncline_pool_result(pool, i, SOON, &result));
        } else {
            OK(syncline_pool_result(pool, i, SOON, &result));
            CHECK(taken(result) == (int64_t)(i * i));
        }
    }
    OK(syncline_pool_look(pool, 0, &done, &has));
    CHECK(done == 1 && has == 0);
    OK(syncline_pool_result(pool, 5, SOON, &result));
    CHECK(result == NULL); /* taken */
    FAILS(SYNCLINE_UNKNOWN_KEY, syncline_pool_result(pool, 21, SOON, &result));
    OK(syncline_pool_free(pool));
    OK(syncline_task_start(square, (void *)(intptr_t)7, &pool));
    OK(syncline_pool_result(pool, 0, SOON, &result));
    CHECK(taken(result) == 49);
    FAILS(SYNCLINE_CLOSED, syncline_pool_add(pool, square, NULL, NULL));
    OK(syncline_pool_free(pool));
}

static void tables(syncline_family *family)
{
    syncline_sharedtable *table, *inner, *found;
    syncline_value *key, *value, *list, *handle, *pairs;
    int existed;
    size_t length, bytes;
    OK(syncline_value_list(&list));
    for (int i = 2; i <= 4; ++i) OK(syncline_value_push(list, number(i)));
    OK(syncline_sharedtable_create(family, list, &table));
    OK(syncline_value_free(list));
    OK(syncline_sharedtable_get(table, key = number(3), &value));
    CHECK(taken(value) == 4);
    OK(syncline_sharedtable_remove(table, key, &existed));
    CHECK(existed == 1);
    OK(syncline_sharedtable_get(table, key, &value));
    CHECK(value == NULL);
    OK(syncline_sharedtable_create(family, NULL, &inner));
    OK(syncline_sharedtable_handle(inner, &handle));
    OK(syncline_sharedtable_set(table, key, handle, &existed));
    CHECK(existed == 0);
    OK(syncline_value_free(handle));
    OK(syncline_sharedtable_set(inner, key, value = number(99), NULL));
    OK(syncline_value_free(value));
    OK(syncline_sharedtable_get(table, key, &handle));
    OK(syncline_sharedtable_open(family, handle, &found));
    OK(syncline_value_free(handle));
    OK(syncline_sharedtable_get(found, key, &value));
    CHECK(taken(value) == 99);
    OK(syncline_sharedtable_look(table, &length, &bytes));
    CHECK(length == 3 && bytes > 0);
    OK(syncline_sharedtable_pairs(found, &pairs));
    OK(syncline_value_what(pairs, NULL, &length));
    CHECK(length == 1);
    OK(syncline_value_free(pairs));
    OK(syncline_value_free(key));
    OK(syncline_sharedtable_free(found));
    OK(syncline_sharedtable_free(inner));
    OK(syncline_sharedtable_free(table));
}

/* The text of a value, which is freed, compared. */
static int says(syncline_value *value, const char *text)
{
    const char *bytes;
    size_t size;
    OK(syncline_value_as_bytes(value, &bytes, &size));
    int same = size == strlen(text) && memcmp(bytes, text, size) == 0;
    OK(syncline_value_free(value));
    return same;
}

static void programs(void)
{
    syncline_child *child;
    syncline_value *line;
    int code, by, running;
    int64_t pid;
    const char *echo[] = {"what up dawg", NULL}, *variables[] = {"SOME_VAR=42", NULL}, *name[] = {"SOME_VAR", NULL};
    OK(syncline_spawn("echo", echo, NULL, &child));
    OK(syncline_child_read_line(child, SOON, &line));
    CHECK(says(line, "what up dawg"));
    OK(syncline_child_read_line(child, SOON, &line));
    CHECK(line == NULL);
    OK(syncline_child_wait(child, NULL, SOON, &code, &by));
    CHECK(code == 0 && by == 0);
    FAILS(SYNCLINE_CLOSED, syncline_child_wait(child, NULL, SOON, &code, &by));
    OK(syncline_child_free(child));
    OK(syncline_spawn("cat", NULL, NULL, &child));
    OK(syncline_child_look(child, &pid, &running));
    CHECK(pid > 1 && running == 1);
    OK(syncline_child_write(child, "one\ntwo\n", 8, SOON));
    OK(syncline_child_read_line(child, SOON, &line));
    CHECK(says(line, "one"));
    OK(syncline_child_close_stdin(child));
    OK(syncline_child_read_all(child, SOON, &line));
    CHECK(says(line, "two\n"));
    OK(syncline_child_wait(child, NULL, SOON, &code, NULL));
    OK(syncline_child_free(child));
    OK(syncline_spawn("printenv", name, variables, &child));
    OK(syncline_child_read_some(child, 2, SOON, &line));
    CHECK(says(line, "42"));
    OK(syncline_child_wait(child, NULL, SOON, &code, NULL));
    OK(syncline_child_free(child));
    OK(syncline_spawn("cat", NULL, NULL, &child));
    FAILS(SYNCLINE_TIMEOUT, syncline_child_read_line(child, 0.01, &line));
    CHECK(syncline_last_error_pid() > 1);
    OK(syncline_child_wait(child, "KILL", SOON, &code, &by));
    CHECK(code == -1 && by == SIGKILL);
    OK(syncline_child_free(child));
    FAILS(SYNCLINE_CONFIGURATION, syncline_spawn("no such program", NULL, NULL, &child));
}

/* SIGPIPE is as C programs have it, and would end this one. */
static void a_program_that_reads_no_more(void)
{
    syncline_child *child;
    int64_t pid;
    int code, running = 1;
    struct sigaction disposition;
    OK(syncline_spawn("true", NULL, NULL, &child));
    while (running) OK(syncline_child_look(child, &pid, &running));
    for (int i = 0; i < 3; ++i) {
        FAILS(SYNCLINE_PEER_LOST, syncline_child_write(child, "x", 1, SOON));
        CHECK(syncline_last_error_pid() == pid);
    }
    CHECK(sigaction(SIGPIPE, NULL, &disposition) == 0 && disposition.sa_handler == SIG_DFL);
    OK(syncline_child_wait(child, NULL, SOON, &code, NULL));
    CHECK(code == 0);
    OK(syncline_child_free(child));
}

static void files(void)
{
    syncline_flock *lock, *second;
    char path[256];
    snprintf(path, sizeof path, "%s/locked", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    OK(syncline_flock_lock(path, 1, 0, &lock));
    CHECK(lock == NULL); /* it is not there */
    OK(syncline_flock_lock(path, 0, SOON, &lock));
    OK(syncline_flock_lock(path, 1, 0, &second));
    CHECK(second == NULL);
    FAILS(SYNCLINE_TIMEOUT, syncline_flock_lock(path, 0, 0.01, &second));
    OK(syncline_flock_free(lock));
    OK(syncline_flock_lock(path, 1, 0, &lock));
    CHECK(lock != NULL);
    OK(syncline_flock_free(lock));
    FAILS(SYNCLINE_SYSTEM, syncline_flock_lock("/nowhere/at/all", 0, SOON, &lock));
}

/* A worker of another process: answers questions; one that was told to dies with the third. */
static int work(const char *invitation, const char *manner)
{
    syncline_family *family;
    syncline_workqueue *queue;
    syncline_item *item;
    syncline_value *value;
    int over, mortal = strcmp(manner, "mortal") == 0;
    OK(syncline_family_accept(invitation, &family));
    OK(syncline_workqueue_create(family, "work", &queue, NULL));
    for (int count = 1;; ++count) {
        OK(syncline_workqueue_read(queue, SOON, &item, &over));
        if (item == NULL) break;
        if (mortal && count == 3) raise(SIGKILL);
        OK(syncline_item_answer(item, value = number(-number_of(item))));
        OK(syncline_value_free(value));
    }
    OK(syncline_workqueue_free(queue));
    OK(syncline_family_free(family));
    return 0;
}

static void processes(syncline_family *family, const char *self)
{
    enum { QUESTIONS = 20 };
    syncline_workqueue *queue;
    syncline_child *children[2];
    syncline_item *item;
    syncline_value *value;
    char invitation[128];
    int over, answered[QUESTIONS] = {0}, code, by;
    OK(syncline_family_invitation(family, invitation, sizeof invitation));
    OK(syncline_workqueue_create(family, "work", &queue, NULL));
    for (int i = 0; i < QUESTIONS; ++i) {
        OK(syncline_workqueue_write(queue, value = number(i), SOON));
        OK(syncline_value_free(value));
    }
    OK(syncline_workqueue_close(queue));
    for (int i = 0; i < 2; ++i) {
        const char *args[] = {invitation, i == 0 ? "mortal" : "steady", NULL};
        OK(syncline_spawn(self, args, NULL, &children[i]));
        if (i == 0) {
            OK(syncline_child_wait(children[0], NULL, SOON, &code, &by));
            CHECK(by == SIGKILL);
        }
    }
    for (;;) {
        OK(syncline_workqueue_read(queue, SOON, &item, &over));
        if (item == NULL) break;
        int64_t answer = -number_of(item);
        CHECK(answer >= 0 && answer < QUESTIONS);
        answered[answer] += 1;
        OK(syncline_item_done(item));
    }
    for (int i = 0; i < QUESTIONS; ++i) CHECK(answered[i] == 1);
    OK(syncline_child_wait(children[1], NULL, SOON, &code, &by));
    CHECK(code == 0);
    for (int i = 0; i < 2; ++i) OK(syncline_child_free(children[i]));
    OK(syncline_workqueue_free(queue));
}

int main(int argc, char **argv)
{
    if (argc > 2) return work(argv[1], argv[2]);
    syncline_family *family;
    syncline_family_facts facts;
    OK(syncline_family_create(&family));
    channels(family);
    workqueues(family);
    maps_and_mutexes(family);
    background();
    tables(family);
    files();
    if (can_spawn()) {
        programs();
        a_program_that_reads_no_more();
        processes(family, argv[0]);
    }
    OK(syncline_family_look(family, &facts));
    CHECK(facts.members >= 1 && facts.objects == 0 && facts.blocks == 0);
    OK(syncline_family_free(family));
    return 0;
}
