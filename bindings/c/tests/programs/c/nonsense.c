/* What no caller should pass: every call gives a status, words about it, and changes nothing. */
#include <limits.h>

#include "checks.h"

static uint64_t seed = 7;

static uint64_t chance(void)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed;
}

/* A pointer that is no handle: NULL, small, random, freed, or of another kind. */
static void *strange(void *freed, void *other)
{
    switch (chance() % 5) {
    case 0: return NULL;
    case 1: return (void *)(uintptr_t)(chance() % 64);
    case 2: return (void *)(uintptr_t)chance();
    case 3: return freed;
    default: return other;
    }
}

static int stop(void) { return 1; }
static int nothing(void) { return 0; }

int main(void)
{
    syncline_session *session, *closed;
    syncline_table *table, *freed_table, *matrix;
    float numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8}, before[4], after[4];
    int64_t ids[2] = {0, 1};

    FAILS(SYNCLINE_ARGUMENT, syncline_open(0, 0, NULL));
    FAILS(SYNCLINE_ARGUMENT, syncline_open(0, -1, &session));
    FAILS(SYNCLINE_ARGUMENT, syncline_open(0, NAN, &session));
    FAILS(SYNCLINE_ARGUMENT, syncline_open(0, INFINITY, &session));
    OK(syncline_open(0, 5, &closed));
    OK(syncline_close(closed));
    FAILS(SYNCLINE_ARGUMENT, syncline_close(closed));
    OK(syncline_open(0, 5, &session));
    CHECK(session != closed);

    syncline_table_options options = {.dtype = 99};
    FAILS(SYNCLINE_ARGUMENT, syncline_array_create(session, 4, &options, NULL, 0, &table));
    options = (syncline_table_options){.updater = "magic"};
    FAILS(SYNCLINE_CONFIGURATION, syncline_array_create(session, 4, &options, NULL, 0, &table));
    CHECK(strstr(syncline_last_error(), "magic") != NULL);
    options = (syncline_table_options){.name = "\xff\xfe"};
    FAILS(SYNCLINE_ARGUMENT, syncline_array_create(session, 4, &options, NULL, 0, &table));
    options = (syncline_table_options){.dtype = SYNCLINE_INT32, .updater = "adagrad"};
    FAILS(SYNCLINE_CONFIGURATION, syncline_array_create(session, 4, &options, NULL, 0, &table));
    FAILS(SYNCLINE_CONFIGURATION, syncline_array_create(session, (uint64_t)-1, NULL, NULL, 0, &table));
    FAILS(SYNCLINE_CONFIGURATION, syncline_matrix_create(session, UINT64_MAX / 2, UINT64_MAX / 2, NULL, NULL, 0, &table));
    FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_array_create(session, 4, NULL, numbers, 5, &table));
    FAILS(SYNCLINE_ARGUMENT, syncline_array_create(session, 4, NULL, NULL, 0, NULL));
    OK(syncline_array_create(session, 4, NULL, numbers, 4, &table));
    OK(syncline_matrix_create(session, 2, 4, NULL, NULL, 0, &matrix));
    OK(syncline_array_create(session, 0, NULL, NULL, 0, &freed_table));
    OK(syncline_table_get(freed_table, NULL, 0)); /* no numbers are a table too */
    OK(syncline_table_free(freed_table));
    FAILS(SYNCLINE_ARGUMENT, syncline_table_free(freed_table));
    OK(syncline_table_get(table, before, 4));

    FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_table_add(table, numbers, 5, NULL, 0));
    FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_table_add(table, numbers, SIZE_MAX, NULL, 0));
    FAILS(SYNCLINE_ARGUMENT, syncline_table_add(table, NULL, 4, NULL, 0));
    FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_table_get(table, after, 0));
    FAILS(SYNCLINE_ARGUMENT, syncline_table_get(table, NULL, 4));
    syncline_add_options wild = {.given = 15, .learning_rate = NAN, .momentum = -3, .rho = INFINITY, .lambda = -1};
    syncline_table_add(table, numbers, 4, &wild, 0); /* an updater that needs none of them may take it */
    OK(syncline_table_get(table, before, 4));

    int64_t bad[2] = {0, 2}, negative[2] = {-1, 0}, huge[2] = {INT64_MAX, 0};
    FAILS(SYNCLINE_UNKNOWN_KEY, syncline_table_get_rows(matrix, bad, 2, numbers, 8));
    FAILS(SYNCLINE_UNKNOWN_KEY, syncline_table_add_rows(matrix, negative, 2, numbers, 8, NULL, 1));
    CHECK(strstr(syncline_last_error(), "-1") != NULL);
    FAILS(SYNCLINE_UNKNOWN_KEY, syncline_table_add_rows(matrix, huge, 2, numbers, 8, NULL, 1));
    FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_table_add_rows(matrix, ids, 2, numbers, 7, NULL, 1));
    FAILS(SYNCLINE_ARGUMENT, syncline_table_add_rows(matrix, ids, SIZE_MAX / 2, numbers, 8, NULL, 1));
    FAILS(SYNCLINE_ARGUMENT, syncline_table_get_rows(matrix, (int64_t *)((char *)ids + 1), 1, numbers, 4));
    FAILS(SYNCLINE_ARGUMENT, syncline_table_get_keys(table, ids, numbers, SIZE_MAX / 4));
    CHECK(syncline_table_get_keys(table, ids, numbers, 2) != SYNCLINE_OK); /* it has no keys */
    OK(syncline_table_get(table, after, 4));
    CHECK(memcmp(before, after, sizeof before) == 0);

    FAILS(SYNCLINE_ARGUMENT, syncline_aggregate(session, numbers, 4, -1, 0));
    FAILS(SYNCLINE_ARGUMENT, syncline_aggregate(session, numbers, 4, 0, 17));
    FAILS(SYNCLINE_ARGUMENT, syncline_aggregate(session, NULL, 4, 0, 0));
    FAILS(SYNCLINE_ARGUMENT, syncline_aggregate(session, numbers, SIZE_MAX, 0, 0));
    FAILS(SYNCLINE_ARGUMENT, syncline_save(session, NULL));
    CHECK(syncline_load(session, "/nowhere/at/all") != SYNCLINE_OK);

    syncline_tree *tree, *closed_tree;
    syncline_tree_options one = {.base = 1};
    FAILS(SYNCLINE_ARGUMENT, syncline_tree_localhost(1, 2, 0, &one, &tree));
    CHECK(syncline_tree_localhost(3, 2, 0, NULL, &tree) != SYNCLINE_OK);
    CHECK(syncline_tree_localhost(0, 0, 0, NULL, &tree) != SYNCLINE_OK);
    FAILS(SYNCLINE_ARGUMENT, syncline_tree_static(1, 2, NULL, 0, NULL, 0, NULL, &tree));
    OK(syncline_tree_null(&closed_tree));
    OK(syncline_tree_close(closed_tree));
    OK(syncline_tree_of(session, &tree));
    FAILS(SYNCLINE_ARGUMENT, syncline_tree_broadcast(tree, numbers, 4, 0, 0));
    FAILS(SYNCLINE_ARGUMENT, syncline_tree_broadcast(tree, numbers, 4, 0, 2));
    FAILS(SYNCLINE_ARGUMENT, syncline_tree_all_reduce_with(tree, numbers, 4, 0, NULL, NULL, NULL));
    FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_tree_all_gather(tree, numbers, 4, 0, after, 3));
    FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_tree_reduce_scatter(tree, numbers, 4, 0, 0, after, 3, NULL));
    FAILS(SYNCLINE_ARGUMENT, syncline_tree_all_to_all(tree, numbers, after, SIZE_MAX, 0));

    syncline_value *value, *list, *freed_value;
    FAILS(SYNCLINE_ARGUMENT, syncline_value_text(NULL, &value));
    FAILS(SYNCLINE_ARGUMENT, syncline_value_text("\xc3", &value));
    size_t dims[2] = {SIZE_MAX, SIZE_MAX};
    FAILS(SYNCLINE_ARGUMENT, syncline_value_tensor(0, dims, 2, numbers, &value));
    OK(syncline_value_nil(&freed_value));
    OK(syncline_value_free(freed_value));
    OK(syncline_value_list(&list));
    FAILS(SYNCLINE_ARGUMENT, syncline_value_push(list, list));
    FAILS(SYNCLINE_ARGUMENT, syncline_value_push(list, freed_value));
    FAILS(SYNCLINE_ARGUMENT, syncline_value_put(list, freed_value, freed_value));
    FAILS(SYNCLINE_ARGUMENT, syncline_value_item(list, 0, &value));
    FAILS(SYNCLINE_ARGUMENT, syncline_value_item(list, SIZE_MAX, &value));

    syncline_server *server;
    syncline_client *client;
    FAILS(SYNCLINE_ARGUMENT, syncline_server_open(NULL, -1, NULL, 1, &server, NULL));
    FAILS(SYNCLINE_ARGUMENT, syncline_server_open(NULL, 70000, NULL, 1, &server, NULL));
    CHECK(syncline_server_open("no such host.invalid", 0, NULL, 1, &server, NULL) != SYNCLINE_OK);
    OK(syncline_server_open(NULL, 0, "secret", 0.2, &server, NULL));
    FAILS(SYNCLINE_ARGUMENT, syncline_server_clients(server, 1, NULL, NULL, NULL));
    CHECK(syncline_client_connect(NULL, 1, "secret", 0.2, &client) != SYNCLINE_OK);

    /* Handles that are none, by the ten thousand. */
    for (int round = 0; round < 10000; ++round) {
        void *handle = strange(freed_table, session);
        CHECK(syncline_table_get(handle, after, 4) == SYNCLINE_ARGUMENT);
        CHECK(syncline_table_free(handle) == SYNCLINE_ARGUMENT);
        CHECK(syncline_value_free(strange(freed_value, session)) == SYNCLINE_ARGUMENT);
        CHECK(syncline_tree_barrier(strange(closed_tree, session)) == SYNCLINE_ARGUMENT);
        CHECK(syncline_barrier(strange(closed, table)) == SYNCLINE_ARGUMENT);
        CHECK(syncline_client_close(strange(freed_value, server)) == SYNCLINE_ARGUMENT);
        CHECK(syncline_peer_close(strange(freed_value, server)) == SYNCLINE_ARGUMENT);
        CHECK(syncline_future_free(strange(freed_value, server)) == SYNCLINE_ARGUMENT);
    }
    CHECK(strcmp(syncline_status_name(-5), "unknown") == 0 && strcmp(syncline_status_name(INT_MAX), "unknown") == 0);

    /* A wait that the host ends. */
    syncline_set_interrupt(stop);
    FAILS(SYNCLINE_INTERRUPTED, syncline_client_connect(NULL, 1, "secret", 60, &client));
    syncline_set_going_on(nothing);
    FAILS(SYNCLINE_INTERRUPTED, syncline_client_connect(NULL, 1, "secret", 60, &client));
    syncline_set_interrupt(NULL);

    OK(syncline_value_free(list));
    OK(syncline_server_close(server));
    OK(syncline_tree_close(tree));
    OK(syncline_table_free(table));
    OK(syncline_table_free(matrix));
    OK(syncline_close(session));
    return 0;
}
