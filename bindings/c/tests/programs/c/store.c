/* The key-value store: every call, alone and in a job of any size, with the numbers that it must give. */
#include <unistd.h>

#include "checks.h"

enum { ROWS = 4, COLS = 4, SIZE = ROWS * COLS };

static const size_t dims[2] = {ROWS, COLS};

static syncline_kv_key number(int64_t key) { return (syncline_kv_key){.number = key}; }
static syncline_kv_key name(const char *key) { return (syncline_kv_key){.name = key}; }
static syncline_kv_array array(float *data) { return (syncline_kv_array){.axes = 2, .dims = dims, .data = data}; }

static float *filled(float *data, float value)
{
    for (int i = 0; i < SIZE; ++i) data[i] = value;
    return data;
}

static int all_are(const float *data, float value)
{
    for (int i = 0; i < SIZE; ++i)
        if (data[i] != value) return 0;
    return 1;
}

/* stored += 2 * pushed, and a look at the key. */
static int twice(void *user, const syncline_kv_key *key, const syncline_kv_array *pushed, const syncline_kv_array *stored)
{
    *(int64_t *)user = key->name ? -1 : key->number;
    if (pushed->rows) {
        size_t rows, count;
        CHECK(syncline_rows_count(pushed->rows, &rows, &count) == SYNCLINE_OK);
        return (int)rows; /* refuses them */
    }
    for (int i = 0; i < SIZE; ++i) ((float *)stored->data)[i] += 2 * ((const float *)pushed->data)[i];
    return 0;
}

static void local_stores(void)
{
    float a[SIZE], b[SIZE], c[SIZE], d[SIZE];
    char type[32];
    syncline_kvstore *store;
    OK(syncline_kvstore_create(NULL, "Local_AllReduce_CPU", &store));
    OK(syncline_kvstore_type(store, type, sizeof type));
    CHECK(strcmp(type, "local_allreduce_cpu") == 0);
    int32_t rank, workers, dead;
    int capable;
    OK(syncline_kvstore_where(store, &rank, &workers));
    OK(syncline_kvstore_num_dead_node(store, &dead));
    OK(syncline_kvstore_is_capable(store, "optimizer", &capable));
    CHECK(rank == 0 && workers == 1 && dead == 0 && capable == 1);

    syncline_kv_key one[1] = {number(3)}, three[3] = {number(5), number(7), number(9)}, same[4] = {*one, *one, *one, *one};
    syncline_kv_array four[4] = {array(filled(a, 4))};
    OK(syncline_kvstore_init(store, one, four, 1));
    four[0] = array(filled(b, 0));
    OK(syncline_kvstore_pull(store, one, four, 1, 1));
    CHECK(all_are(b, 4));
    syncline_kv_array zeros[3] = {array(filled(a, 0)), array(a), array(a)};
    OK(syncline_kvstore_init(store, three, zeros, 3)); /* values may be the same memory */
    syncline_kv_array devices[4] = {array(filled(a, 1)), array(a), array(a), array(a)};
    OK(syncline_kvstore_push(store, same, devices, 4)); /* a sum over devices replaces */
    syncline_kv_array outs[4] = {array(a), array(b), array(c), array(d)};
    OK(syncline_kvstore_pull(store, same, outs, 4, 1));
    CHECK(all_are(a, 4) && all_are(d, 4));

    OK(syncline_kvstore_pushpull(store, one, outs, 1, NULL, NULL, 0)); /* in place */
    CHECK(all_are(a, 4));
    OK(syncline_kvstore_pushpull(store, same, outs, 2, one, outs + 2, 1));
    CHECK(all_are(c, 8));
    syncline_kv_key fresh[1] = {number(100)};
    OK(syncline_kvstore_broadcast(store, fresh, outs, 1, fresh, outs + 1, 1));
    CHECK(all_are(b, 4));
    FAILS(SYNCLINE_CONFIGURATION, syncline_kvstore_broadcast(store, fresh, outs, 1, fresh, outs + 1, 1));

    int64_t seen = 0;
    OK(syncline_kvstore_set_updater(store, twice, &seen));
    syncline_kv_array ones[3] = {array(filled(a, 1)), array(a), array(a)};
    OK(syncline_kvstore_push(store, three, ones, 3));
    CHECK(seen == 9);
    OK(syncline_kvstore_pull(store, three + 1, outs + 1, 1, 1));
    CHECK(all_are(b, 2));
    OK(syncline_kvstore_set_updater(store, NULL, NULL));

    syncline_kv_future *future;
    int done;
    OK(syncline_kvstore_push_async(store, one, ones, 1, -3, NULL));
    OK(syncline_kvstore_push_async(store, one, outs + 1, 1, 5, &future));
    OK(syncline_kv_future_wait(future, 5));
    FAILS(SYNCLINE_ARGUMENT, syncline_kv_future_read(future, 5, outs, 1));
    OK(syncline_kv_future_free(future));
    OK(syncline_kvstore_pull_async(store, one, 1, 0, &future));
    OK(syncline_kv_future_read(future, 5, outs + 3, 1));
    OK(syncline_kv_future_done(future, &done));
    CHECK(done == 1 && all_are(d, 2));
    FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_kv_future_read(future, 5, outs, 2));
    OK(syncline_kv_future_free(future));
    OK(syncline_kvstore_flush(store));

    OK(syncline_kvstore_set_optimizer(store, "sgd", "{\"learning_rate\": 0.5, \"momentum\": 0.5, \"lr_mult\": {\"3\": 2}}", 0));
    OK(syncline_kvstore_push(store, one, ones, 1));
    OK(syncline_kvstore_pull(store, one, outs + 1, 1, 1));
    CHECK(all_are(b, 1)); /* 2 - 0.5 * 2 * 1 */
    OK(syncline_kvstore_set_learning_rate(store, 0));
    OK(syncline_kvstore_push(store, one, ones, 1)); /* what is left of the momentum */
    OK(syncline_kvstore_pull(store, one, outs + 1, 1, 1));
    CHECK(all_are(b, 0.5));
    char path[300];
    snprintf(path, sizeof path, "%s/states.%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
    OK(syncline_kvstore_save_optimizer_states(store, path, 1));
    OK(syncline_kvstore_load_optimizer_states(store, path));
    CHECK(syncline_kvstore_load_optimizer_states(store, "/nowhere/at/all") != SYNCLINE_OK);
    OK(syncline_kvstore_push(store, one, ones, 1));
    OK(syncline_kvstore_pull(store, one, outs + 1, 1, 1));
    CHECK(all_are(b, 0.25));
    OK(syncline_kvstore_set_optimizer(store, "sgd", "{\"momentum\": 0.5, \"learning_rate\": 1, \"lr_scheduler\": {\"name\": \"factor\", \"step\": 10, \"factor\": 0.5}}", 1));
    FAILS(SYNCLINE_CONFIGURATION, syncline_kvstore_set_optimizer(store, "sgd", "{\"momentun\": 0.5}", 0));
    FAILS(SYNCLINE_CONFIGURATION, syncline_kvstore_set_optimizer(store, "sgd", "[1]", 0));
    FAILS(SYNCLINE_CONFIGURATION, syncline_kvstore_set_optimizer(store, "sgd", "{\"lr_scheduler\": {\"name\": \"magic\"}}", 0));
    FAILS(SYNCLINE_CONFIGURATION, syncline_kvstore_set_optimizer(store, "magic", NULL, 0));
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_set_optimizer(store, NULL, NULL, 0));
    char options[400];
    size_t size;
    OK(syncline_optimizer_options("adam", NULL, options, sizeof options, &size));
    CHECK(strstr(options, "\"beta1\":0.9") != NULL && size == strlen(options) + 1);

    char answer[200];
    OK(syncline_kvstore_send_command_to_servers(store, 77, "body", 4, answer, sizeof answer));
    CHECK(strstr(answer, "77") != NULL);
    CHECK(syncline_kvstore_send_command_to_servers(store, 0, "no optimizer", 12, NULL, 0) != SYNCLINE_OK);
    const char *two_bits[4] = {"type", "2bit", "threshold", "0.5"};
    FAILS(SYNCLINE_CONFIGURATION, syncline_kvstore_set_gradient_compression(store, two_bits, 2)); /* local stores sum, they do not send */
    OK(syncline_kvstore_barrier(store));
    OK(syncline_kvstore_free(store));
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_free(store));
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_push(store, one, ones, 1));

    OK(syncline_kvstore_create(NULL, "device", &store));
    OK(syncline_kvstore_set_gradient_compression(store, two_bits, 2));
    two_bits[3] = "0";
    FAILS(SYNCLINE_CONFIGURATION, syncline_kvstore_set_gradient_compression(store, two_bits, 2));
    OK(syncline_kvstore_init(store, one, zeros, 1));
    OK(syncline_kvstore_set_optimizer(store, "test", "{\"rescale_grad\": 2}", 0));
    syncline_kv_array some[1] = {array(filled(a, 0.4f))};
    OK(syncline_kvstore_push(store, one, some, 1));
    OK(syncline_kvstore_pull(store, one, outs + 1, 1, 1));
    float before = b[0];
    OK(syncline_kvstore_push(store, one, some, 1));
    OK(syncline_kvstore_pull(store, one, outs + 1, 1, 1));
    CHECK(b[0] == before + 1);
    OK(syncline_kvstore_free(store));
}

static void rows_and_mistakes(void)
{
    float a[SIZE], b[SIZE], values[2 * COLS] = {1, 1, 1, 1, 2, 2, 2, 2}, got[3 * COLS];
    int64_t ids[2] = {3, 1}, wanted[4] = {3, 0, 3, 1}, found[3];
    syncline_kvstore *store;
    syncline_rows *rows, *out, *freed;
    size_t num_ids, count;
    OK(syncline_kvstore_create(NULL, "local", &store));
    OK(syncline_rows_create(SYNCLINE_FLOAT32, dims, 2, ids, 2, values, 2 * COLS, &rows));
    OK(syncline_rows_create(SYNCLINE_FLOAT32, dims, 2, NULL, 0, NULL, 0, &out));
    FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_rows_create(SYNCLINE_FLOAT32, dims, 2, ids, 2, values, 7, &freed));
    FAILS(SYNCLINE_UNKNOWN_KEY, syncline_rows_create(SYNCLINE_FLOAT32, dims, 2, (int64_t[]){4}, 1, values, COLS, &freed));
    FAILS(SYNCLINE_ARGUMENT, syncline_rows_create(99, dims, 2, ids, 2, values, 8, &freed));
    FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_rows_create(SYNCLINE_FLOAT32, NULL, 0, NULL, 0, NULL, 0, &freed));
    OK(syncline_rows_create(SYNCLINE_FLOAT32, dims, 2, NULL, 0, NULL, 0, &freed));
    OK(syncline_rows_free(freed));
    FAILS(SYNCLINE_ARGUMENT, syncline_rows_free(freed));

    syncline_kv_key key[2] = {name("e"), name("dense")};
    syncline_kv_array sparse[1] = {{.rows = rows}}, dense[1] = {array(filled(a, 1))}, into[1] = {array(filled(b, 9))};
    OK(syncline_kvstore_init(store, key, sparse, 1));
    OK(syncline_kvstore_init(store, key + 1, dense, 1));
    OK(syncline_kvstore_pull(store, key, into, 1, 1));
    CHECK(b[0] == 0 && b[COLS] == 2 && b[3 * COLS] == 1);
    syncline_kv_rows wish[2] = {{key[0], wanted, 4, out}, {key[0], NULL, 0, rows}};
    OK(syncline_kvstore_row_sparse_pull(store, wish, 2));
    OK(syncline_rows_count(out, &num_ids, &count));
    CHECK(num_ids == 3 && count == 3 * COLS);
    OK(syncline_rows_read(out, found, 3, got, 3 * COLS));
    CHECK(found[0] == 0 && found[1] == 1 && found[2] == 3 && got[0] == 0 && got[COLS] == 2 && got[2 * COLS] == 1);
    FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_rows_read(out, found, 2, got, 2 * COLS));
    OK(syncline_rows_count(rows, &num_ids, NULL));
    CHECK(num_ids == 0); /* no ids, no rows */
    sparse[0].rows = out;
    OK(syncline_kvstore_set_optimizer(store, "test", NULL, 0));
    OK(syncline_kvstore_push(store, key, sparse, 1));
    OK(syncline_kvstore_pull(store, key, sparse, 1, 0)); /* all rows, into an array of rows */
    OK(syncline_rows_count(out, &num_ids, NULL));
    CHECK(num_ids == ROWS);
    int64_t seen = 0;
    OK(syncline_kvstore_set_updater(store, twice, &seen));
    FAILS(SYNCLINE_SYSTEM, syncline_kvstore_push(store, key, sparse, 1));
    CHECK(seen == -1 && strstr(syncline_last_error(), "returned 4") != NULL);
    OK(syncline_kvstore_set_updater(store, NULL, NULL));

    /* What is refused changes nothing. */
    wish[0].key = key[1];
    FAILS(SYNCLINE_CONFIGURATION, syncline_kvstore_row_sparse_pull(store, wish, 1));
    wish[0].key = key[0], wanted[2] = -1;
    FAILS(SYNCLINE_UNKNOWN_KEY, syncline_kvstore_row_sparse_pull(store, wish, 1));
    wish[0].out = NULL;
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_row_sparse_pull(store, wish, 1));
    wish[0].out = freed;
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_row_sparse_pull(store, wish, 1));
    sparse[0].rows = freed;
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_push(store, key, sparse, 1));
    syncline_kv_key strange[2] = {number(1), name("\xff")}, unknown[1] = {name("nobody")};
    FAILS(SYNCLINE_CONFIGURATION, syncline_kvstore_push(store, strange, dense, 1));
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_push(store, strange + 1, dense, 1));
    FAILS(SYNCLINE_UNKNOWN_KEY, syncline_kvstore_push(store, unknown, dense, 1));
    FAILS(SYNCLINE_UNKNOWN_KEY, syncline_kvstore_pull(store, unknown, into, 1, 1));
    FAILS(SYNCLINE_CONFIGURATION, syncline_kvstore_init(store, key + 1, dense, 1));
    syncline_kv_array two[2] = {array(a), array(a + 1)}, wrong = array(a);
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_pull(store, key, two, 2, 1));
    CHECK(strstr(syncline_last_error(), "same memory") != NULL);
    wrong.dtype = SYNCLINE_FLOAT64, wrong.axes = 1;
    FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_kvstore_push(store, key + 1, &wrong, 1));
    wrong.dtype = -1;
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_push(store, key + 1, &wrong, 1));
    wrong.dtype = 0, wrong.axes = UINT32_MAX, wrong.dims = NULL;
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_push(store, key + 1, &wrong, 1));
    wrong.axes = 100000, wrong.dims = dims; /* a structure that was never filled in: not read past its end */
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_push(store, key + 1, &wrong, 1));
    size_t huge[2] = {SIZE_MAX, SIZE_MAX};
    wrong.axes = 2, wrong.dims = huge;
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_push(store, key + 1, &wrong, 1));
    wrong = array(NULL);
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_push(store, key + 1, &wrong, 1));
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_push(store, NULL, dense, 1));
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_push(store, key, dense, SIZE_MAX));
    OK(syncline_kvstore_push(store, NULL, NULL, 0)); /* nothing is a list too */
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_create(NULL, NULL, &store));
    syncline_kvstore *none;
    FAILS(SYNCLINE_CONFIGURATION, syncline_kvstore_create(NULL, "magic", &none));
    FAILS(SYNCLINE_ARGUMENT, syncline_kvstore_create(NULL, "dist_sync", &none)); /* it needs a session */
    OK(syncline_kvstore_pull(store, key + 1, into, 1, 1));
    CHECK(all_are(b, 1));
    OK(syncline_rows_free(rows));
    OK(syncline_rows_free(out));
    OK(syncline_kvstore_free(store));
}

/* The j-th pushes of all workers are summed, in any number of workers. */
static void job(void)
{
    syncline_session *session;
    syncline_kvstore *store, *apart;
    int32_t rank, workers;
    float a[SIZE], b[SIZE];
    OK(syncline_open(0, 20, &session));
    SYNCLINE_HERE();
    OK(syncline_kvstore_create(session, "dist_sync", &store));
    OK(syncline_kvstore_where(store, &rank, &workers));
    syncline_kv_key key[2] = {name("9"), name("99")};
    syncline_kv_array ones[1] = {array(filled(a, 1))}, into[1] = {array(b)};
    OK(syncline_kvstore_init(store, key + rank % 2, ones, 1)); /* in any order */
    OK(syncline_kvstore_init(store, key + (rank + 1) % 2, ones, 1));
    OK(syncline_kvstore_set_optimizer(store, "test", "{\"rescale_grad\": 2}", 0));
    filled(a, (float)(rank + 1));
    for (int round = 0; round < 7; ++round) {
        OK(syncline_kvstore_push(store, key, ones, 1));
        OK(syncline_kvstore_pull(store, key, into, 1, 1));
        CHECK(all_are(b, (float)((workers + 1) * workers * 2 / 2 * (round + 1) + 1)));
    }
    int64_t seen;
    FAILS(SYNCLINE_CONFIGURATION, syncline_kvstore_set_updater(store, twice, &seen)); /* functions do not travel */
    OK(syncline_kvstore_barrier(store));

    OK(syncline_kvstore_create(session, "dist_async", &apart));
    OK(syncline_kvstore_init(apart, key, ones, 1)); /* worker 0's counts: ones */
    FAILS(SYNCLINE_CONFIGURATION, syncline_kvstore_push(apart, key, ones, 1));
    OK(syncline_kvstore_barrier(apart)); /* one worker's optimizer counts for all */
    OK(syncline_kvstore_set_optimizer(apart, "test", NULL, 0));
    OK(syncline_kvstore_push(apart, key, ones, 1));
    OK(syncline_kvstore_barrier(apart));
    OK(syncline_kvstore_pull(apart, key, into, 1, 1));
    CHECK(all_are(b, 1 + (float)(workers * (workers + 1) / 2)));
    OK(syncline_kvstore_free(apart));
    OK(syncline_barrier(session));
    OK(syncline_close(session));
    FAILS(SYNCLINE_CLOSED, syncline_kvstore_push(store, key, ones, 1));
    OK(syncline_kvstore_free(store));
}

int main(void)
{
    local_stores();
    rows_and_mistakes();
    job();
    return 0;
}
