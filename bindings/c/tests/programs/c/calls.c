/* Every call of a world of one, with the numbers that it must give. */
#include "checks.h"

static void session_and_tables(void)
{
    syncline_session *session;
    OK(syncline_open(0, 10.0, &session));
    syncline_place place;
    OK(syncline_where(session, &place));
    CHECK(place.rank == 0 && place.size == 1 && place.worker_id == 0 && place.num_workers == 1 && place.server_id == 0);

    float start[4] = {1, 2, 3, 4}, delta[4] = {1, 1, 1, 1}, got[4];
    syncline_table *array;
    syncline_table_options options = {.updater = "sgd", .name = "weights"};
    OK(syncline_array_create(session, 4, &options, start, 4, &array));
    OK(syncline_table_add(array, delta, 4, NULL, 1));
    OK(syncline_table_get(array, got, 4));
    CHECK(got[0] == 0 && got[3] == 3);
    OK(syncline_table_add_get(array, delta, got, 4, NULL));
    CHECK(got[0] == -1 && got[3] == 2);
    char name[16], cut[4];
    OK(syncline_table_name(array, name, sizeof name));
    OK(syncline_table_name(array, cut, sizeof cut));
    CHECK(strcmp(name, "weights") == 0 && strcmp(cut, "wei") == 0);

    syncline_future *future;
    int done = 0;
    OK(syncline_table_get_async(array, &future));
    FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_future_wait(future, 5.0, got, 3));
    OK(syncline_future_wait(future, 5.0, got, sizeof got));
    OK(syncline_future_done(future, &done));
    CHECK(done == 1 && got[1] == 0);
    OK(syncline_future_free(future));

    syncline_table *matrix;
    syncline_table_options doubles = {.dtype = SYNCLINE_FLOAT64};
    OK(syncline_matrix_create(session, 3, 2, &doubles, NULL, 0, &matrix));
    int64_t ids[3] = {2, 0, 2};
    double rows[6] = {1, 2, 3, 4, 5, 6}, all[6], some[4];
    OK(syncline_table_add_rows(matrix, ids, 3, rows, 6, NULL, 0));
    OK(syncline_table_get(matrix, all, 6));
    CHECK(all[0] == 3 && all[1] == 4 && all[2] == 0 && all[4] == 6 && all[5] == 8);
    OK(syncline_table_get_rows(matrix, ids, 2, some, 4));
    CHECK(some[0] == 6 && some[1] == 8 && some[2] == 3);
    int64_t changed[3];
    size_t how_many;
    OK(syncline_table_get_changed(matrix, all, 6, changed, 3, &how_many));
    CHECK(how_many == 3 && changed[2] == 2);
    OK(syncline_table_get_changed(matrix, all, 6, changed, 3, &how_many));
    CHECK(how_many == 0);
    uint64_t num_rows, num_cols;
    OK(syncline_table_shape(matrix, &num_rows, &num_cols));
    CHECK(num_rows == 3 && num_cols == 2);

    syncline_table *momentum;
    syncline_table_options smooth = {.updater = "momentum_sgd"};
    syncline_add_options half = {.given = 2, .momentum = 0.5f};
    OK(syncline_array_create(session, 4, &smooth, NULL, 0, &momentum));
    OK(syncline_table_add(momentum, delta, 4, &half, 1));
    OK(syncline_table_get(momentum, got, 4));
    CHECK(got[0] == -0.5f);

    /* What would not count is refused, and not overlooked. */
    syncline_add_options unknown = {.given = 16, .momentum = 0.5f};
    FAILS(SYNCLINE_ARGUMENT, syncline_table_add(momentum, delta, 4, &unknown, 1));
    syncline_table *none = NULL;
    syncline_table_options unbounded = {.staleness = 5};
    FAILS(SYNCLINE_ARGUMENT, syncline_array_create(session, 4, &unbounded, NULL, 0, &none));
    FAILS(SYNCLINE_ARGUMENT, syncline_array_create(session, 4, NULL, NULL, 4, &none));
    CHECK(none == NULL);

    syncline_table *keys;
    syncline_table_options counts = {.dtype = SYNCLINE_INT64};
    int64_t which[3] = {-7, (int64_t)1 << 60, -7}, ones[3] = {1, 5, 1}, numbers[3];
    OK(syncline_keys_create(session, &counts, &keys));
    OK(syncline_table_add_keys(keys, which, ones, 3, 1));
    OK(syncline_table_get_keys(keys, which, numbers, 3));
    CHECK(numbers[0] == 2 && numbers[1] == 5);

    double loss = 0.25;
    OK(syncline_aggregate(session, &loss, 1, SYNCLINE_FLOAT64, SYNCLINE_MEAN));
    CHECK(loss == 0.25);

    char folder[256];
    snprintf(folder, sizeof folder, "%s/checkpoint", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    OK(syncline_save(session, folder));
    OK(syncline_table_add(array, delta, 4, NULL, 1));
    OK(syncline_load(session, folder));
    OK(syncline_table_get(array, got, 4));
    CHECK(got[0] == -1);

    OK(syncline_barrier(session));
    OK(syncline_close(session));
    FAILS(SYNCLINE_CLOSED, syncline_table_get(array, got, 4));
    OK(syncline_table_free(array));
    OK(syncline_table_free(matrix));
    OK(syncline_table_free(momentum));
    OK(syncline_table_free(keys));
}

static int larger(void *mine, const void *received, size_t count, void *user)
{
    (void)mine, (void)received, (void)count;
    ++*(int *)user;
    return 0;
}

static int doubled(const char *path, const syncline_value *leaf, void *user, syncline_value **result)
{
    int64_t number;
    strcat(user, path), strcat(user, " ");
    if (syncline_value_as_int(leaf, &number) != SYNCLINE_OK) return 0; /* kept */
    return syncline_value_int(2 * number, result) == SYNCLINE_OK ? 0 : 1;
}

/* {"b": [1, "text"], "a": 5} */
static syncline_value *nested(void)
{
    syncline_value *map, *list, *key, *item;
    OK(syncline_value_map(&map));
    OK(syncline_value_list(&list));
    OK(syncline_value_int(1, &item));
    OK(syncline_value_push(list, item));
    OK(syncline_value_text("text", &item));
    OK(syncline_value_push(list, item));
    OK(syncline_value_text("b", &key));
    OK(syncline_value_put(map, key, list));
    OK(syncline_value_text("a", &key));
    OK(syncline_value_int(5, &item));
    OK(syncline_value_put(map, key, item));
    return map;
}

static void nested_values(void)
{
    syncline_tree *tree;
    syncline_value *value = nested(), *walked, *all, *key, *item;
    char paths[64] = "";
    size_t count;
    uint32_t contributors;
    OK(syncline_value_walk(value, doubled, paths, &walked));
    CHECK(strcmp(paths, "a b.0 b.1 ") == 0);
    OK(syncline_value_pair(walked, 1, &key, &item));
    int64_t number;
    OK(syncline_value_as_int(item, &number));
    CHECK(number == 10);
    OK(syncline_value_free(key));
    OK(syncline_value_free(item));
    OK(syncline_value_free(walked));

    OK(syncline_tree_null(&tree));
    FAILS(SYNCLINE_ARGUMENT, syncline_tree_all_reduce_value(tree, value, 99, NULL, NULL, NULL, &all, NULL));
    OK(syncline_tree_broadcast_value(tree, value, 1, &all));
    OK(syncline_value_free(all));
    OK(syncline_tree_scatter(tree, value, &all));
    OK(syncline_value_free(all));
    OK(syncline_tree_gather_value(tree, value, 1, &all));
    OK(syncline_value_what(all, NULL, &count));
    CHECK(count == 1);
    OK(syncline_tree_all_to_all_value(tree, all, &walked));
    OK(syncline_value_free(walked));
    OK(syncline_value_free(all));
    OK(syncline_tree_all_gather_value(tree, value, &all));
    OK(syncline_value_free(all));
    OK(syncline_tree_all_reduce_value(tree, value, SYNCLINE_SUM, NULL, NULL, NULL, &all, &contributors));
    CHECK(contributors == 1);
    OK(syncline_value_free(all));
    OK(syncline_tree_stats(tree, NULL, 0, &count));
    CHECK(count == 0);
    float one = 1;
    syncline_reduction *reduction;
    int done;
    OK(syncline_tree_all_reduce_start(tree, &one, 1, SYNCLINE_FLOAT32, SYNCLINE_SUM, &reduction));
    OK(syncline_reduction_wait(reduction, 5, &contributors));
    OK(syncline_reduction_wait(reduction, 5, &contributors));
    OK(syncline_reduction_done(reduction, &done));
    CHECK(contributors == 1 && done == 1);
    OK(syncline_reduction_free(reduction));
    OK(syncline_tree_close(tree));
    OK(syncline_value_free(value));
}

static void trees(void)
{
    syncline_tree *tree;
    float numbers[3] = {1, 2, 3}, out[3];
    uint32_t contributors = 0, node = 0, nodes = 0;
    size_t part = 0;
    int calls = 0;
    OK(syncline_tree_null(&tree));
    OK(syncline_tree_where(tree, &node, &nodes, NULL));
    CHECK(node == 1 && nodes == 1);
    OK(syncline_tree_all_reduce(tree, numbers, 3, SYNCLINE_FLOAT32, SYNCLINE_SUM, &contributors));
    CHECK(contributors == 1 && numbers[2] == 3);
    OK(syncline_tree_all_reduce_with(tree, numbers, 3, SYNCLINE_FLOAT32, larger, &calls, &contributors));
    CHECK(contributors == 1 && calls == 0 && numbers[2] == 3);
    OK(syncline_tree_broadcast(tree, numbers, 3, SYNCLINE_FLOAT32, 1));
    OK(syncline_tree_gather(tree, numbers, 3, SYNCLINE_FLOAT32, 1, out, 3));
    OK(syncline_tree_all_gather(tree, numbers, 3, SYNCLINE_FLOAT32, out, 3));
    CHECK(out[1] == 2);
    OK(syncline_tree_reduce_scatter(tree, numbers, 3, SYNCLINE_FLOAT32, SYNCLINE_SUM, out, 3, &part));
    CHECK(part == 3);
    OK(syncline_tree_all_to_all(tree, numbers, out, 3, SYNCLINE_FLOAT32));
    OK(syncline_tree_barrier(tree));
    OK(syncline_tree_all_reduce_rest(tree, numbers, 3, SYNCLINE_FLOAT32, SYNCLINE_SUM));
    CHECK(numbers[0] == 0);
    OK(syncline_tree_close(tree));
    OK(syncline_tree_localhost(1, 1, 0, NULL, &tree));
    OK(syncline_tree_close(tree));
}

static void values(void)
{
    syncline_value *list, *item, *map, *key, *again;
    OK(syncline_value_list(&list));
    OK(syncline_value_text("ten", &item));
    OK(syncline_value_push(list, item));
    FAILS(SYNCLINE_ARGUMENT, syncline_value_free(item)); /* it was taken over */
    size_t dims[2] = {2, 3};
    int16_t numbers[6] = {1, 2, 3, 4, 5, 6};
    OK(syncline_value_tensor(SYNCLINE_INT16, dims, 2, numbers, &item));
    OK(syncline_value_push(list, item));
    OK(syncline_value_map(&map));
    OK(syncline_value_int(-4, &key));
    OK(syncline_value_float(0.5, &item));
    OK(syncline_value_put(map, key, item));
    OK(syncline_value_push(list, map));

    int32_t kind;
    size_t count, axes;
    OK(syncline_value_what(list, &kind, &count));
    CHECK(kind == SYNCLINE_LIST && count == 3);
    OK(syncline_value_item(list, 0, &item));
    const char *text;
    OK(syncline_value_as_bytes(item, &text, &count));
    CHECK(count == 3 && memcmp(text, "ten", 3) == 0);
    OK(syncline_value_bool(1, &again));
    FAILS(SYNCLINE_ARGUMENT, syncline_value_push(list, again)); /* a piece of it is out */
    OK(syncline_value_free(again));
    OK(syncline_value_free(item));
    OK(syncline_value_item(list, 1, &item));
    int32_t dtype;
    const size_t *extents;
    const void *data;
    OK(syncline_value_as_tensor(item, &dtype, &axes, &extents, &data));
    CHECK(dtype == SYNCLINE_INT16 && axes == 2 && extents[1] == 3 && memcmp(data, numbers, sizeof numbers) == 0);
    OK(syncline_value_free(item));
    OK(syncline_value_item(list, 2, &map));
    OK(syncline_value_free(list)); /* the piece keeps the whole alive */
    OK(syncline_value_pair(map, 0, &key, &item));
    int64_t whole;
    double number;
    OK(syncline_value_as_int(key, &whole));
    OK(syncline_value_as_float(item, &number));
    CHECK(whole == -4 && number == 0.5);
    FAILS(SYNCLINE_ARGUMENT, syncline_value_as_int(item, &whole));
    OK(syncline_value_free(key));
    OK(syncline_value_free(item));
    OK(syncline_value_free(map));
}

static int greet(syncline_peer *peer, void *user)
{
    syncline_value *message, *answer;
    const char *text;
    char tag[8], address[32];
    size_t size;
    int64_t id;
    OK(syncline_peer_recv(peer, &message));
    OK(syncline_value_as_bytes(message, &text, &size));
    CHECK(size == 4 && memcmp(text, "ping", 4) == 0);
    OK(syncline_value_free(message));
    OK(syncline_peer_set_tag(peer, "hi"));
    OK(syncline_peer_tag(peer, tag, sizeof tag));
    OK(syncline_peer_set_id(peer, 42));
    OK(syncline_peer_id(peer, &id));
    OK(syncline_peer_address(peer, address, sizeof address));
    CHECK(strcmp(tag, "hi") == 0 && id == 42 && strcmp(address, "127.0.0.1") == 0);
    OK(syncline_value_text("pong", &answer));
    OK(syncline_peer_send(peer, answer));
    OK(syncline_value_free(answer));
    *(syncline_peer **)user = peer;
    return 0;
}

static int refuse(syncline_peer *peer, void *user)
{
    (void)peer, (void)user;
    return 7;
}

static void client_and_server(void)
{
    syncline_server *server;
    syncline_client *client;
    syncline_value *message;
    syncline_peer *peer = NULL;
    int port = 0;
    size_t count = 0;
    OK(syncline_server_open(NULL, 0, "a secret", 10.0, &server, &port));
    CHECK(port > 0);
    OK(syncline_client_connect(NULL, port, "a secret", 10.0, &client));
    OK(syncline_client_try_recv(client, &message));
    CHECK(message == NULL);
    OK(syncline_value_text("ping", &message));
    OK(syncline_client_send(client, message));
    OK(syncline_value_free(message));
    OK(syncline_server_clients(server, 1, greet, &peer, &count));
    CHECK(count == 1);
    FAILS(SYNCLINE_ARGUMENT, syncline_peer_id(peer, NULL)); /* only inside of the function */
    OK(syncline_client_recv(client, &message));
    OK(syncline_value_free(message));
    FAILS(SYNCLINE_CALLER, syncline_server_clients_with(server, "hi", 1, refuse, NULL, &count));
    CHECK(strstr(syncline_last_error(), "7") != NULL);
    OK(syncline_server_clients_with(server, "other", 0, refuse, NULL, &count));
    CHECK(count == 0);

    double sent[4] = {1, 2, 3, 4}, received[4];
    size_t dims[2] = {2, 2}, others[1] = {3};
    OK(syncline_client_send_array(client, SYNCLINE_FLOAT64, dims, 2, sent));
    OK(syncline_client_send_array(client, SYNCLINE_FLOAT64, dims, 2, sent));
    OK(syncline_server_recv_any(server, NULL, &message, &peer));
    OK(syncline_value_free(message));
    FAILS(SYNCLINE_SHAPE_MISMATCH, syncline_peer_recv_into(peer, SYNCLINE_FLOAT64, others, 1, received));
    OK(syncline_peer_recv_into(peer, SYNCLINE_FLOAT64, dims, 2, received));
    CHECK(received[3] == 4);
    OK(syncline_peer_free(peer));

    OK(syncline_value_int(5, &message));
    OK(syncline_server_broadcast(server, message, "hi", &count));
    CHECK(count == 1);
    OK(syncline_value_free(message));
    int64_t five = 0;
    OK(syncline_client_recv(client, &message));
    OK(syncline_value_as_int(message, &five));
    CHECK(five == 5);
    OK(syncline_value_free(message));
    syncline_traffic tx, rx;
    OK(syncline_client_stats(client, &tx, &rx));
    CHECK(tx.num_calls == 3 && rx.num_calls == 2);
    OK(syncline_server_stats(server, &tx, &rx));
    OK(syncline_server_close(server));
    FAILS(SYNCLINE_CLOSED, syncline_client_recv(client, &message));
    OK(syncline_client_close(client));
}

int main(void)
{
    CHECK(syncline_abi_version() == SYNCLINE_ABI_VERSION);
    CHECK(syncline_last_error_kind() == SYNCLINE_OK && strcmp(syncline_last_error(), "") == 0);
    CHECK(strcmp(syncline_status_name(SYNCLINE_PEER_LOST), "PeerLost") == 0);
    SYNCLINE_HERE();
    session_and_tables();
    trees();
    nested_values();
    values();
    client_and_server();
    return 0;
}
