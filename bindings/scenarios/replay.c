/* Replays a story in C: replay STORY */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "syncline.h"

enum { MOST = 64 };

static struct {
    char name[32];
    syncline_table *table;
    int dtype;
    size_t count;
} tables[MOST];
static int num_tables, is_sync, line_number;
static struct {
    char name[32];
    syncline_channel *channel;
    syncline_workqueue *queue;
} shared[MOST];
static int num_shared;
static syncline_family *family;
static syncline_session *session;
static syncline_place me;
static const char *story;

static void stop(const char *why)
{
    fprintf(stderr, "%s:%d: %s (%s)\n", story, line_number, why, syncline_last_error());
    exit(1);
}

static int dtype_of(const char *name)
{
    static const char *names[] = {"float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8"};
    for (int i = 0; i < 9; ++i)
        if (strcmp(name, names[i]) == 0) return i;
    stop("an unknown dtype");
    return -1;
}

static int find(const char *name)
{
    for (int i = 0; i < num_tables; ++i)
        if (strcmp(tables[i].name, name) == 0) return i;
    stop("an unknown table");
    return -1;
}

/* Numbers of a story as those of a table, and back. */
static void store(void *place, int dtype, size_t index, double number)
{
    switch (dtype) {
    case SYNCLINE_FLOAT32: ((float *)place)[index] = (float)number; break;
    case SYNCLINE_FLOAT64: ((double *)place)[index] = number; break;
    case SYNCLINE_INT32: ((int32_t *)place)[index] = (int32_t)number; break;
    case SYNCLINE_INT64: ((int64_t *)place)[index] = (int64_t)number; break;
    default: stop("a dtype that stories do not use");
    }
}

static double load(const void *place, int dtype, size_t index)
{
    switch (dtype) {
    case SYNCLINE_FLOAT32: return ((const float *)place)[index];
    case SYNCLINE_FLOAT64: return ((const double *)place)[index];
    case SYNCLINE_INT32: return ((const int32_t *)place)[index];
    case SYNCLINE_INT64: return (double)((const int64_t *)place)[index];
    default: return 0;
    }
}

static size_t size_of(int dtype) { return dtype == SYNCLINE_FLOAT64 || dtype == SYNCLINE_INT64 ? 8 : 4; }

static int place_of(char **words, int from, int count, const char *word)
{
    while (from < count && strcmp(words[from], word) != 0) ++from;
    return from;
}

static void read_all(void *out, int dtype, char **words, int from, int to)
{
    for (int i = from; i < to; ++i) store(out, dtype, (size_t)(i - from), atof(words[i]));
}

static void compare(const void *got, int dtype, size_t have, char **words, int from, int count)
{
    int plus = place_of(words, from, count, "+");
    if ((size_t)(plus - from) != have) stop("another number of numbers");
    for (int i = from; i < plus; ++i) {
        double wanted = atof(words[i]) + me.num_workers * atof(words[plus + 1 + i - from]);
        if (load(got, dtype, (size_t)(i - from)) != wanted) stop("a number differs");
    }
}

static size_t ids_of(char *text, int64_t *ids)
{
    size_t count = 0;
    for (char *id = strtok(text, ","); id; id = strtok(NULL, ",")) ids[count++] = atoll(id);
    return count;
}

static syncline_status make(char **words, int count)
{
    char numbers[8 * MOST];
    syncline_table_options options = {.dtype = dtype_of(words[3]), .updater = words[2], .name = words[1]};
    syncline_table *table;
    syncline_status status;
    size_t size;
    SYNCLINE_HERE();
    if (strcmp(words[0], "array") == 0) {
        size = (size_t)(count - 4);
        read_all(numbers, options.dtype, words, 4, count);
        status = syncline_array_create(session, size, &options, numbers, size, &table);
    } else {
        size = (size_t)(atoi(words[4]) * atoi(words[5]));
        status = syncline_matrix_create(session, (uint64_t)atoi(words[4]), (uint64_t)atoi(words[5]), &options, NULL, 0, &table);
    }
    if (status == SYNCLINE_OK) {
        strncpy(tables[num_tables].name, words[1], sizeof tables[0].name - 1);
        tables[num_tables].table = table, tables[num_tables].dtype = options.dtype, tables[num_tables++].count = size;
    }
    return status;
}

static syncline_status walk(int t, int steps)
{
    char delta[8 * MOST], got[8 * MOST];
    for (int step = 1; step <= steps; ++step) {
        for (size_t i = 0; i < tables[t].count; ++i) store(delta, tables[t].dtype, i, 0.1 * (me.worker_id + 1) * step);
        syncline_status status = syncline_table_add(tables[t].table, delta, tables[t].count, NULL, !is_sync);
        if (status == SYNCLINE_OK) status = syncline_table_get(tables[t].table, got, tables[t].count);
        if (status != SYNCLINE_OK) return status;
    }
    return SYNCLINE_OK;
}

/* What trees do beside reductions; node k brings k times the numbers. */
static syncline_status gather_round(syncline_tree *tree, char **words, int count)
{
    double given[MOST], mine[MOST], all[MOST * MOST], sent[MOST * MOST];
    uint32_t node, nodes, root = 1;
    syncline_status status = syncline_tree_where(tree, &node, &nodes, NULL);
    if (status != SYNCLINE_OK || strcmp(words[0], "meet") == 0) return status == SYNCLINE_OK ? syncline_tree_barrier(tree) : status;
    int rooted = strcmp(words[0], "broadcast") == 0 || strcmp(words[0], "gather") == 0;
    if (rooted) root = strcmp(words[1], "last") == 0 ? nodes : (uint32_t)atoi(words[1]);
    size_t have = (size_t)(count - 1 - rooted);
    read_all(given, SYNCLINE_FLOAT64, words, 1 + rooted, count);
    for (size_t i = 0; i < have; ++i) mine[i] = given[i] * node;
    if (strcmp(words[0], "broadcast") == 0) {
        status = syncline_tree_broadcast(tree, mine, have, SYNCLINE_FLOAT64, root);
        for (size_t i = 0; i < have && status == SYNCLINE_OK; ++i)
            if (mine[i] != given[i] * root) stop("a number differs");
        return status;
    }
    double factor = 1;
    if (strcmp(words[0], "all_to_all") == 0) {
        for (uint32_t to = 0; to < nodes; ++to)
            for (size_t i = 0; i < have; ++i) sent[to * have + i] = mine[i] * (to + 1);
        factor = node;
        status = syncline_tree_all_to_all(tree, sent, all, have, SYNCLINE_FLOAT64);
    } else if (rooted) {
        status = syncline_tree_gather(tree, mine, have, SYNCLINE_FLOAT64, root, node == root ? all : NULL, node == root ? nodes * have : 0);
        if (node != root) return status;
    } else {
        status = syncline_tree_all_gather(tree, mine, have, SYNCLINE_FLOAT64, all, nodes * have);
    }
    for (uint32_t from = 0; from < nodes && status == SYNCLINE_OK; ++from)
        for (size_t i = 0; i < have; ++i)
            if (all[from * have + i] != given[i] * (from + 1) * factor) stop("a number differs");
    return status;
}

static double number_of(syncline_value *value)
{
    double number;
    if (syncline_value_as_float(value, &number) != SYNCLINE_OK || syncline_value_free(value) != SYNCLINE_OK) stop("no number came");
    return number;
}

/* A worker of a queue: answers every question with so many times its number. */
static int answer_all(void *queue, void *factor, size_t id, syncline_value **result)
{
    (void)id, (void)result;
    for (;;) {
        syncline_item *question;
        syncline_value *value, *answer;
        if (syncline_workqueue_read(queue, 30, &question, NULL) != SYNCLINE_OK) return 1;
        if (question == NULL) return 0;
        if (syncline_item_value(question, &value) != SYNCLINE_OK) return 1;
        if (syncline_value_float(number_of(value) * *(double *)factor, &answer) != SYNCLINE_OK) return 1;
        if (syncline_item_answer(question, answer) != SYNCLINE_OK || syncline_value_free(answer) != SYNCLINE_OK) return 1;
    }
}

static syncline_workqueue *queue_of_workers;
static int take_queue(void *user, void **state)
{
    (void)user;
    *state = queue_of_workers;
    return 0;
}

static int state_of(const char *word) { return strcmp(word, "open") == 0 ? 0 : strcmp(word, "closed") == 0 ? 1 : 2; }

/* Channels and workqueues. */
static syncline_status pass_on(char **words, int count)
{
    syncline_value *values[MOST], *item;
    syncline_status status = SYNCLINE_OK;
    int state, at = 0;
    if (family == NULL && (status = syncline_family_create(&family)) != SYNCLINE_OK) return status;
    while (at < num_shared && strcmp(shared[at].name, words[1]) != 0) ++at;
    if (strcmp(words[0], "channel") == 0 || strcmp(words[0], "queue") == 0) {
        strncpy(shared[at].name, words[1], sizeof shared[at].name - 1);
        num_shared = at + 1;
        if (words[0][0] == 'q') return syncline_workqueue_create(family, NULL, &shared[at].queue, NULL);
        return syncline_channel_create(family, (size_t)atoi(words[2]), 0, &shared[at].channel);
    }
    if (at == num_shared) stop("an unknown channel or queue");
    if (strcmp(words[0], "close") == 0)
        return shared[at].channel ? syncline_channel_close(shared[at].channel) : syncline_workqueue_close(shared[at].queue);
    if (strcmp(words[0], "drain") == 0) return syncline_workqueue_drain(shared[at].queue, 30);
    if (strcmp(words[0], "read") == 0) {
        status = count > 3 ? syncline_channel_read(shared[at].channel, 30, &state, &item) : syncline_channel_try_read(shared[at].channel, &state, &item);
        if (status != SYNCLINE_OK) return status;
        if (state != state_of(words[2]) || (item != NULL) != (count > 3)) stop("the channel is in another state");
        if (item != NULL && number_of(item) != atof(words[3])) stop("another item came");
        return SYNCLINE_OK;
    }
    if (strcmp(words[0], "work") == 0) {
        double factor = atof(words[2]);
        syncline_map *map;
        queue_of_workers = shared[at].queue;
        if ((status = syncline_map_start(1, take_queue, answer_all, &factor, &map)) != SYNCLINE_OK) return status;
        if ((status = syncline_map_join(map, 30, &item)) != SYNCLINE_OK) return status;
        syncline_value_free(item);
        return syncline_map_free(map);
    }
    if (strcmp(words[0], "answers") == 0) {
        for (int i = 2; i < count; ++i) {
            syncline_item *answer;
            if ((status = syncline_workqueue_read(shared[at].queue, 30, &answer, NULL)) != SYNCLINE_OK) return status;
            if (answer == NULL || syncline_item_value(answer, &item) != SYNCLINE_OK || number_of(item) != atof(words[i])) stop("another answer came");
            if ((status = syncline_item_done(answer)) != SYNCLINE_OK) return status;
        }
        return SYNCLINE_OK;
    }
    int asks = strcmp(words[0], "ask") == 0, from = asks ? 2 : 3;
    if (!asks && strcmp(words[0], "write") != 0) stop("an unknown command");
    for (int i = from; i < count; ++i)
        if (syncline_value_float(atof(words[i]), &values[i - from]) != SYNCLINE_OK) stop("no value");
    const syncline_value *const *given = (const syncline_value *const *)values;
    if (asks) {
        status = syncline_workqueue_write_all(shared[at].queue, given, (size_t)(count - from), 30);
    } else {
        status = syncline_channel_write_all(shared[at].channel, given, (size_t)(count - from), 30, &state);
        if (status == SYNCLINE_OK && state != state_of(words[2])) stop("the channel is in another state");
    }
    for (int i = from; i < count; ++i) syncline_value_free(values[i - from]);
    return status;
}

static syncline_status reduce(char **words, int count)
{
    static const char *names[] = {"sum", "prod", "min", "max", "mean"};
    int op = 0, equals = place_of(words, 2, count, "="), plus = place_of(words, equals, count, "+");
    size_t have = (size_t)(equals - 2), part;
    double numbers[MOST], mine[MOST];
    uint32_t node, nodes;
    syncline_tree *tree;
    syncline_status status = syncline_tree_of(session, &tree);
    if (status != SYNCLINE_OK || (status = syncline_tree_where(tree, &node, &nodes, NULL)) != SYNCLINE_OK) return status;
    while (op < 4 && strcmp(words[1], names[op]) != 0) ++op;
    read_all(numbers, SYNCLINE_FLOAT64, words, 2, equals);
    if (strcmp(words[0], "reduce") == 0) {
        status = syncline_tree_all_reduce(tree, numbers, have, SYNCLINE_FLOAT64, op, NULL);
        if (status == SYNCLINE_OK) compare(numbers, SYNCLINE_FLOAT64, have, words, equals + 1, count);
    } else if ((status = syncline_tree_reduce_scatter(tree, numbers, have, SYNCLINE_FLOAT64, op, mine, MOST, &part)) == SYNCLINE_OK) {
        size_t each = have / nodes, more = have % nodes, before = node - 1, first = before * each + (before < more ? before : more);
        if (part != each + (before < more)) stop("a part of another size");
        for (size_t i = 0; i < part; ++i)
            if (mine[i] != atof(words[equals + 1 + (int)(first + i)]) + me.num_workers * atof(words[plus + 1 + (int)(first + i)])) stop("a number differs");
    }
    syncline_tree_close(tree);
    return status;
}

static int one_of(const char *word, const char *const *all)
{
    while (*all != NULL && strcmp(word, *all) != 0) ++all;
    return *all != NULL;
}

static syncline_status perform(char **words, int count)
{
    char numbers[8 * MOST];
    int64_t ids[MOST];
    syncline_status status;
    const char *command = words[0];
    if (strcmp(command, "array") == 0 || strcmp(command, "matrix") == 0) return make(words, count);
    if (strcmp(command, "barrier") == 0) return syncline_barrier(session);
    if (strcmp(command, "reduce") == 0 || strcmp(command, "reduce_scatter") == 0) return reduce(words, count);
    static const char *const of_trees[] = {"broadcast", "gather", "all_gather", "all_to_all", "meet", NULL};
    static const char *const passed[] = {"channel", "queue", "write", "read", "close", "ask", "drain", "work", "answers", NULL};
    if (one_of(command, of_trees)) {
        syncline_tree *tree;
        if ((status = syncline_tree_of(session, &tree)) != SYNCLINE_OK) return status;
        status = gather_round(tree, words, count);
        syncline_tree_close(tree);
        return status;
    }
    if (one_of(command, passed)) return pass_on(words, count);
    int t = find(words[1]), dtype = tables[t].dtype;
    if (strcmp(command, "walk") == 0) return walk(t, atoi(words[2]));
    if (strcmp(command, "add") == 0) {
        read_all(numbers, dtype, words, 2, count);
        return syncline_table_add(tables[t].table, numbers, (size_t)(count - 2), NULL, !is_sync);
    }
    if (strcmp(command, "add_rows") == 0) {
        read_all(numbers, dtype, words, 3, count);
        return syncline_table_add_rows(tables[t].table, ids, ids_of(words[2], ids), numbers, (size_t)(count - 3), NULL, !is_sync);
    }
    if (strcmp(command, "get_rows") == 0) {
        size_t have = (size_t)(place_of(words, 3, count, "+") - 3);
        status = syncline_table_get_rows(tables[t].table, ids, ids_of(words[2], ids), numbers, have);
        if (status == SYNCLINE_OK) compare(numbers, dtype, have, words, 3, count);
        return status;
    }
    status = syncline_table_get(tables[t].table, numbers, tables[t].count);
    if (status != SYNCLINE_OK) return status;
    if (strcmp(command, "get") == 0) {
        compare(numbers, dtype, tables[t].count, words, 2, count);
    } else if (strcmp(command, "bits") == 0) {
        printf("bits %s ", words[1]);
        for (size_t i = 0; i < tables[t].count * size_of(dtype); ++i) printf("%02x", (unsigned char)numbers[i]);
        printf("\n");
    } else {
        stop("an unknown command");
    }
    return SYNCLINE_OK;
}

int main(int argc, char **argv)
{
    char line[1024], *words[2 * MOST];
    FILE *file = argc > 1 ? fopen(story = argv[1], "r") : NULL;
    if (!file) return fprintf(stderr, "replay STORY\n"), 2;
    while (fgets(line, sizeof line, file)) {
        int count = 0;
        ++line_number;
        for (char *word = strtok(line, " \n"); word && count < 2 * MOST; word = strtok(NULL, " \n")) words[count++] = word;
        if (count == 0 || words[0][0] == '#' || strcmp(words[0], "for") == 0) continue;
        if (strcmp(words[0], "mode") == 0) {
            is_sync = strcmp(words[1], "sync") == 0;
            if (syncline_open(is_sync, 0, &session) != SYNCLINE_OK || syncline_where(session, &me) != SYNCLINE_OK) stop("no session");
        } else if (strcmp(words[0], "fails") == 0) {
            syncline_status status = perform(words + 2, count - 2);
            if (status == SYNCLINE_OK) stop("it worked");
            if (strcmp(syncline_status_name(status), words[1]) != 0) stop("it failed otherwise");
        } else if (perform(words, count) != SYNCLINE_OK) {
            stop("it failed");
        }
    }
    fclose(file);
    for (int i = 0; i < num_tables; ++i) syncline_table_free(tables[i].table);
    for (int i = 0; i < num_shared; ++i) shared[i].channel ? syncline_channel_free(shared[i].channel) : syncline_workqueue_free(shared[i].queue);
    if (family != NULL) syncline_family_free(family);
    if (syncline_close(session) != SYNCLINE_OK) stop("it did not close");
    printf("replayed\n");
    return 0;
}
