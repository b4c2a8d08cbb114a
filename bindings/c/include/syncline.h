/* Syncline keeps the parameters of one model the same in many processes. This is its C interface.
 *
 * Every function returns a syncline_status; what went wrong is kept per thread (syncline_last_error). Handles are opaque and owned
 * by whoever got them: free or close each once. Arrays that are passed in are borrowed for the time of the call.
 * A call on a handle that was freed is SYNCLINE_ARGUMENT, never a crash.
 *
 * Written by cbindgen from bindings/c/src; UPDATE_GOLDEN=1 cargo test -p syncline-c rewrites it. */

#ifndef SYNCLINE_H
#define SYNCLINE_H

#include <stddef.h>
#include <stdint.h>
/* Tells errors where the caller's next calls stand: SYNCLINE_HERE(); syncline_array_create(...); */
#define SYNCLINE_HERE() syncline_here(__FILE__, __LINE__)

// The version of this interface. It grows when a function or a constant is added, and never for another reason: what is
// there once keeps its meaning.
#define SYNCLINE_ABI_VERSION 2

// What every call returns. The numbers never change.
typedef enum {
  // It worked.
  SYNCLINE_OK = 0,
  // A member was killed, ended or was cut off.
  SYNCLINE_PEER_LOST = 1,
  // A member is there but silent, or never came.
  SYNCLINE_TIMEOUT = 2,
  // Two members called different things where the same was needed.
  SYNCLINE_CONTRACT_MISMATCH = 3,
  // A peer could not prove that it belongs to the job.
  SYNCLINE_AUTH = 4,
  // An array has another length, shape or dtype than the operation needs.
  SYNCLINE_SHAPE_MISMATCH = 5,
  // A row, key, table or name that does not exist.
  SYNCLINE_UNKNOWN_KEY = 6,
  // The session or connection was closed, or never opened.
  SYNCLINE_CLOSED = 7,
  // The settings or the launcher's variables make no sense.
  SYNCLINE_CONFIGURATION = 8,
  // The process was forked after the session was opened.
  SYNCLINE_FORKED = 9,
  // The function of syncline_set_interrupt ended the wait.
  SYNCLINE_INTERRUPTED = 10,
  // The operating system refused something.
  SYNCLINE_SYSTEM = 11,
  // An argument cannot be: NULL, a handle that was freed or is of another kind, a number that is none of the constants.
  SYNCLINE_ARGUMENT = 12,
  // A function of the caller's that ran inside the call failed.
  SYNCLINE_CALLER = 13,
  // A bug in Syncline. Nothing is known about what the call has done.
  SYNCLINE_BUG = 14,
} syncline_status;

// The types of numbers.
typedef enum {
  // float
  SYNCLINE_FLOAT32 = 0,
  // double
  SYNCLINE_FLOAT64 = 1,
  // IEEE half precision
  SYNCLINE_FLOAT16 = 2,
  // the upper half of a float
  SYNCLINE_BFLOAT16 = 3,
  // int8_t
  SYNCLINE_INT8 = 4,
  // int16_t
  SYNCLINE_INT16 = 5,
  // int32_t
  SYNCLINE_INT32 = 6,
  // int64_t
  SYNCLINE_INT64 = 7,
  // uint8_t
  SYNCLINE_UINT8 = 8,
} syncline_dtype;

// How two numbers become one.
typedef enum {
  // Their sum.
  SYNCLINE_SUM = 0,
  // Their product.
  SYNCLINE_PROD = 1,
  // The smaller one.
  SYNCLINE_MIN = 2,
  // The larger one.
  SYNCLINE_MAX = 3,
  // Their sum, divided by how many there were.
  SYNCLINE_MEAN = 4,
  // The bits that both have; of floats, 1 if neither is zero.
  SYNCLINE_AND = 5,
  // The bits that either has; of floats, 0 if both are zero.
  SYNCLINE_OR = 6,
} syncline_op;

// What a value is.
typedef enum {
  // Nothing.
  SYNCLINE_NIL = 0,
  // True or false.
  SYNCLINE_BOOL = 1,
  // A whole number.
  SYNCLINE_INT = 2,
  // Any other number.
  SYNCLINE_FLOAT = 3,
  // Text in UTF-8.
  SYNCLINE_TEXT = 4,
  // Bytes without a meaning.
  SYNCLINE_BYTES = 5,
  // Values in order.
  SYNCLINE_LIST = 6,
  // Pairs of key and value.
  SYNCLINE_MAP = 7,
  // Numbers of one dtype.
  SYNCLINE_TENSOR = 8,
  // Leads to a channel, workqueue, mutex or shared table of a family.
  SYNCLINE_HANDLE = 9,
  // What only the program that wrote it understands, such as a pickled object of Python's; it can be passed on.
  SYNCLINE_OPAQUE = 10,
} syncline_kind;

// How far a channel has come.
typedef enum {
  // Takes items.
  SYNCLINE_OPEN = 0,
  // Was closed; has items that nobody has read.
  SYNCLINE_CHANNEL_CLOSED = 1,
  // Was closed, and everything was read.
  SYNCLINE_DRAINED = 2,
} syncline_channel_state;

// Many writers, many readers, first in first out, between threads and processes alike.
typedef struct syncline_channel syncline_channel;

// A program that was started. Freed before it was waited for, it gets SIGTERM, after two seconds SIGKILL.
typedef struct syncline_child syncline_child;

// The side that connects.
typedef struct syncline_client syncline_client;

// This process's membership in a family: processes of one host that share channels, workqueues, mutexes and tables.
typedef struct syncline_family syncline_family;

// A file that is locked.
typedef struct syncline_flock syncline_flock;

// A get that is under way.
typedef struct syncline_future syncline_future;

// An item that was taken. On a lease it is not gone yet: if this process dies before it is done, another reader gets it.
typedef struct syncline_item syncline_item;

// A call of a store that is under way.
typedef struct syncline_kv_future syncline_kv_future;

// A key-value store in the manner of MXNet's. May be used from many threads.
typedef struct syncline_kvstore syncline_kvstore;

// Threads that each run a function.
typedef struct syncline_map syncline_map;

// A recursive lock between threads and processes, and a barrier.
typedef struct syncline_mutex syncline_mutex;

// A client in the hands of its server.
typedef struct syncline_peer syncline_peer;

// Some threads that work off tasks.
typedef struct syncline_pool syncline_pool;

// A reduction under way.
typedef struct syncline_reduction syncline_reduction;

// An array of which only some rows are there, the others being zero: ids in ascending order, each once, and one row of numbers for each.
typedef struct syncline_rows syncline_rows;

// The side that listens.
typedef struct syncline_server syncline_server;

// A process's place in its job; everything else hangs from it. May be used from many threads.
typedef struct syncline_session syncline_session;

// A table of keys and values that threads and processes read and change. Values are copied in and out; a table inside a
// table is a handle (SYNCLINE_HANDLE), and its changes are seen through it.
typedef struct syncline_sharedtable syncline_sharedtable;

// A table. May be used from many threads.
typedef struct syncline_table syncline_table;

// Nodes that combine what they have.
typedef struct syncline_tree syncline_tree;

// A value. Free each handle, pieces of other values too.
typedef struct syncline_value syncline_value;

// Questions from one owner to any number of workers, and their answers. The thread that made it is the owner, all others are
// workers, unless the handle says otherwise (syncline_workqueue_as_owner, syncline_workqueue_as_worker).
typedef struct syncline_workqueue syncline_workqueue;

// Who this process is in its job.
typedef struct {
  // This process's number, from 0.
  int32_t rank;
  // How many processes the job has.
  int32_t size;
  // This process's number among those of its host.
  int32_t local_rank;
  // How many processes of the job share this host.
  int32_t local_size;
  // This process's number among the workers; -1 on a dedicated server.
  int32_t worker_id;
  // How many processes train.
  int32_t num_workers;
  // This process's number among the servers; -1 on a pure worker.
  int32_t server_id;
  // How many processes hold shards.
  int32_t num_servers;
} syncline_place;

// How a table is made. All zero is the default: floats, adds, as consistent as the session says.
typedef struct {
  // A syncline_dtype.
  int32_t dtype;
  // Not 0: `staleness` counts.
  int32_t bounded;
  // A get after j own adds waits until every worker has made j - staleness; 0 is sync mode.
  uint32_t staleness;
  // What an add does: "add", "sgd", "momentum_sgd", "adagrad", "dcasgd" or "dcasgda"; NULL is "add".
  const char *updater;
  // The name that checkpoints and errors use; NULL makes one up.
  const char *name;
} syncline_table_options;

// Numbers for the updater. All zero: what the updater does by itself.
typedef struct {
  // Which of the others count: 1 learning_rate, 2 momentum, 4 rho, 8 lambda, added up.
  uint32_t given;
  // The learning rate that is already inside the delta.
  float learning_rate;
  // Weight of the past.
  float momentum;
  // Step of AdaGrad.
  float rho;
  // Strength of the delay compensation.
  float lambda;
} syncline_add_options;

// What all trees with a job of their own are made with. All zero is the default.
typedef struct {
  // Seconds to wait for somebody who neither comes nor dies; 0 takes SYNCLINE_TIMEOUT, or 30 s.
  double timeout;
  // With how many branches at a node; 0 is 2.
  uint32_t base;
} syncline_tree_options;

// Tells the others where node 1 is; not 0 fails the call.
typedef int (*syncline_publish)(const char *host, uint16_t port, void *user);

// Writes where node 1 is into `host`, which has room for `room` bytes, and `port`, and returns 1; or 0 if nobody has told yet,
// and is asked again; less than 0 fails the call.
typedef int (*syncline_query)(char *host, size_t room, uint16_t *port, void *user);

// What this node exchanged with another over links, which inside a host nobody does.
typedef struct {
  // The other node, from 1.
  uint32_t node;
  // Bytes sent to it.
  uint64_t bytes_sent;
  // Bytes received from it.
  uint64_t bytes_received;
  // Messages sent to it.
  uint64_t calls_sent;
  // Messages received from it.
  uint64_t calls_received;
  // Seconds spent in sending to it.
  double seconds_sending;
  // Seconds spent in receiving from it.
  double seconds_receiving;
} syncline_exchange;

// What turns `mine` and `received`, of `count` numbers each, into one, in `mine`; not 0 fails the call.
typedef int (*syncline_merge)(void *mine, const void *received, size_t count, void *user);

// Makes one leaf of two and leaves it at `result`, which is taken over; NULL keeps `mine`. Both are lent for the time of the
// call. Not 0 fails the call.
typedef int (*syncline_merge_values)(const syncline_value *mine, const syncline_value *received, void *user, syncline_value **result);

// Makes the zero of a leaf, the `index`-th from 0, and leaves it at `result`, which is taken over; NULL keeps the leaf. Not 0
// fails the call.
typedef int (*syncline_zero)(const syncline_value *leaf, size_t index, void *user, syncline_value **result);

// What is called with each leaf and its path, such as "layers.0.weight"; what it leaves at `result` is taken over and takes the
// leaf's place, NULL keeps it. Not 0 ends the walk with SYNCLINE_CALLER.
typedef int (*syncline_visit)(const char *path, const syncline_value *leaf, void *user, syncline_value **result);

// What is called for each client; the peer is valid until it returns. Not 0 ends the call with SYNCLINE_CALLER.
typedef int (*syncline_each)(syncline_peer *peer, void *user);

// Counts of one direction.
typedef struct {
  // Bytes of messages, headers included.
  uint64_t num_bytes;
  // Pieces of memory that they were gathered from, or scattered to.
  uint64_t num_regions;
  // Messages.
  uint64_t num_calls;
  // Attempts to move bytes, each of them about one system call.
  uint64_t num_system_calls;
  // Seconds spent in calls that send, or receive.
  double total_seconds;
  // Seconds of these that were spent in the system calls.
  double system_seconds;
} syncline_traffic;

// What a family holds.
typedef struct {
  // Processes that are alive.
  size_t members;
  // Channels, workqueues, mutexes and tables.
  size_t objects;
  // Pieces of memory that large items lie in.
  size_t blocks;
  // Bytes of memory.
  uint64_t memory;
  // Members that died without leaving.
  uint64_t deaths;
} syncline_family_facts;

// What a workqueue holds.
typedef struct {
  // 1 if the calling thread is its owner through this handle.
  int owner;
  // 1 if it was closed.
  int closed;
  // Questions that no worker has taken.
  size_t questions;
  // Questions that are not finished, taken or not.
  size_t unfinished;
  // Answers that the owner has not taken.
  size_t answers;
} syncline_workqueue_facts;

// What runs in the background. What it leaves at `result` is taken over; NULL is nil. Not 0 fails it, with the words of its
// thread's last error.
typedef int (*syncline_task)(void *user, syncline_value **result);

// Makes what the function gets as its `state`; not 0 fails this worker before the function is called.
typedef int (*syncline_init)(void *user, void **state);

// What a worker runs; `id` is 1 … n. What it leaves at `result` is taken over; NULL is nil. Not 0 fails this worker, with the words
// of its thread's last error.
typedef int (*syncline_work)(void *state, void *user, size_t id, syncline_value **result);

// A key: a name, or without one (NULL) a number. One store has one kind of them.
typedef struct {
  // The name, or NULL.
  const char *name;
  // The number, where there is no name.
  int64_t number;
} syncline_kv_key;

// An array: numbers in row-major order, or some rows.
typedef struct {
  // A syncline_dtype. Not read where there are rows.
  int32_t dtype;
  // How many extents there are. Not read where there are rows.
  uint32_t axes;
  // The extents. Not read where there are rows.
  const size_t *dims;
  // The numbers; written only where the array is an output. Not read where there are rows.
  void *data;
  // NULL, or an array of which only some rows are there.
  syncline_rows *rows;
} syncline_kv_array;

// The rows that are wanted of one key.
typedef struct {
  // Which key.
  syncline_kv_key key;
  // The ids, in any order; repeated ones count once.
  const int64_t *ids;
  // How many there are.
  size_t num_ids;
  // What is filled with exactly these rows.
  syncline_rows *out;
} syncline_kv_rows;

// Changes `stored` by what was pushed; both are lent for the time of the call. Not 0 fails the push with SYNCLINE_SYSTEM, and what the function
// changed before stays changed. It must not call a store. It runs in the thread that pushes, or in one of the store's own when the push goes on
// in the background.
typedef int (*syncline_kv_updater)(void *user, const syncline_kv_key *key, const syncline_kv_array *pushed, const syncline_kv_array *stored);

// A table of Multiverso's.
typedef void *TableHandler;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the interface that the library was built with; compare it with `SYNCLINE_ABI_VERSION` of the header.
uint32_t syncline_abi_version(void);

// The version of the library, such as "0.1.0".
const char *syncline_version(void);

// Has `asked` called now and then while a call waits, at least every 100 ms and in the thread of that call; not 0 ends the wait with
// SYNCLINE_INTERRUPTED. For hosts of a language of their own, whose users press Ctrl-C. NULL: nobody is asked.
void syncline_set_interrupt(int (*asked)(void));

// As syncline_set_interrupt, the other way round: 0 ends the wait; and only calls of the thread that sets it ask. For hosts whose functions return 0 when an
// exception ended them, and belong to one thread's interpreter.
void syncline_set_going_on(int (*asked)(void));

// Says where the caller's next calls of this thread stand in its program; errors about calls that differ between ranks
// show it. `SYNCLINE_HERE()` does it with the current line.
//
// The caller promises:
// `file` is NULL or a text that ends with a zero byte.
void syncline_here(const char *file, int line);

// What went wrong in this thread's last call that failed, in words; "" before the first. Yours until the next failure in
// this thread.
const char *syncline_last_error(void);

// The status of this thread's last call that failed; SYNCLINE_OK before the first.
syncline_status syncline_last_error_kind(void);

// The rank that is to blame for this thread's last failure; -1 where none is.
int64_t syncline_last_error_rank(void);

// The process that is to blame for this thread's last failure; -1 where none is known.
int64_t syncline_last_error_pid(void);

// The host of the process that is to blame for this thread's last failure; NULL where none is known. Yours until the next
// failure in this thread.
const char *syncline_last_error_host(void);

// The name of a status, such as "PeerLost", as other languages call their exceptions; "unknown" for any other number.
const char *syncline_status_name(int32_t status);

// Joins the job that the environment describes, or a world of one, and returns when everybody is there.
//
// Tables are in sync mode if `sync` is not 0. `timeout` is in seconds, how long a call waits for somebody who neither comes nor
// dies; 0 takes SYNCLINE_TIMEOUT, or 30 s. A process that ends without syncline_close has failed, and the others are told.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_open(int sync, double timeout, syncline_session **out);

// Leaves the job politely and frees the session. Its tables and trees stay to be freed; calls on them fail with
// SYNCLINE_CLOSED. The process where the others meet stays until they have left.
syncline_status syncline_close(syncline_session *session);

// Leaves the job because this process failed, and frees the session; the others are told `reason`.
//
// The caller promises:
// `reason` is NULL or a text.
syncline_status syncline_abort(syncline_session *session, const char *reason);

// Returns when every rank has called it. Every add issued before it by anyone is applied before anyone leaves it.
syncline_status syncline_barrier(syncline_session *session);

// Returns when every worker has left or died: what a dedicated server does (SYNCLINE_ROLE=server) between syncline_open and
// syncline_close. The tables of the job are served meanwhile, as they are beside any other call.
syncline_status syncline_stay_for_workers(syncline_session *session);

// Who this process is in its job.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_where(syncline_session *session, syncline_place *out);

// Combines `count` numbers over all workers, in place and in order of worker; no server takes part. Every worker calls it.
//
// The caller promises:
// `data` has `count` numbers of `dtype`, which nobody else uses meanwhile.
syncline_status syncline_aggregate(syncline_session *session, void *data, size_t count, int32_t dtype, int32_t op);

// Saves all tables with their updater states below `path`. Every worker calls it. A crash while saving leaves the previous
// checkpoint as it was.
//
// The caller promises:
// `path` is a text.
syncline_status syncline_save(syncline_session *session, const char *path);

// Fills the tables, made before in the same manner, from a checkpoint of any number of workers and servers.
//
// The caller promises:
// `path` is a text.
syncline_status syncline_load(syncline_session *session, const char *path);

// Makes a table of `size` numbers that move together. Every worker makes the same tables in the same order; worker 0's
// `initial` counts, `count` numbers or NULL for zeros. Returns when the initial value is in place everywhere.
//
// The caller promises:
// `options` is NULL or can be read; `initial` is NULL or has `count` numbers; `out` may be written.
syncline_status syncline_array_create(syncline_session *session,
                                      uint64_t size,
                                      const syncline_table_options *options,
                                      const void *initial,
                                      size_t count,
                                      syncline_table **out);

// Makes a table of `rows` × `cols` numbers, row by row, that move together or by rows; else as syncline_array_create.
//
// The caller promises:
// As syncline_array_create.
syncline_status syncline_matrix_create(syncline_session *session,
                                       uint64_t rows,
                                       uint64_t cols,
                                       const syncline_table_options *options,
                                       const void *initial,
                                       size_t count,
                                       syncline_table **out);

// Makes a table with one number for each 64-bit key, zero until somebody adds to it.
//
// The caller promises:
// `options` is NULL or can be read; `out` may be written.
syncline_status syncline_keys_create(syncline_session *session, const syncline_table_options *options, syncline_table **out);

// Adds `count` numbers, one for each of the table's, through its updater. Returns at once: `delta` may be changed again,
// while the add goes on. With `wait` not 0 it returns when everybody's next get sees it; in sync mode that needs everybody's
// add of the same round.
//
// The caller promises:
// `delta` has `count` numbers of the table's dtype; `options` is NULL or can be read.
syncline_status syncline_table_add(syncline_table *table, const void *delta, size_t count, const syncline_add_options *options, int wait);

// Gets all `count` numbers, as the table's consistency allows; this worker's own adds are always in them. After an error,
// what `out` holds is not told.
//
// The caller promises:
// `out` has room for `count` numbers of the table's dtype.
syncline_status syncline_table_get(syncline_table *table, void *out, size_t count);

// Adds `delta` and gets the table after it into `out`, in one pass where the consistency allows it.
//
// The caller promises:
// `delta` and `out` have `count` numbers of the table's dtype and do not overlap; `options` is NULL or can be read.
syncline_status syncline_table_add_get(syncline_table *table,
                                       const void *delta,
                                       void *out,
                                       size_t count,
                                       const syncline_add_options *options);

// Adds one row for each id; ids are counted from 0, may come in any order and more than once. A refused add changes nothing.
//
// The caller promises:
// `ids` has `num_ids` ids and `delta` `count` numbers of the table's dtype; `options` is NULL or can be read.
syncline_status syncline_table_add_rows(syncline_table *table,
                                        const int64_t *ids,
                                        size_t num_ids,
                                        const void *delta,
                                        size_t count,
                                        const syncline_add_options *options,
                                        int wait);

// Gets the rows of these ids, in their order.
//
// The caller promises:
// `ids` has `num_ids` ids, and `out` has room for `count` numbers of the table's dtype.
syncline_status syncline_table_get_rows(syncline_table *table, const int64_t *ids, size_t num_ids, void *out, size_t count);

// Brings `copy`, which holds the whole table, up to date: writes the rows that others changed since this worker's last
// call, and tells how many there were and, in order, their ids, as far as there is room. The first call fetches every row.
//
// The caller promises:
// `copy` has `count` numbers of the table's dtype; `ids` is NULL or has `room` places; `changed` is NULL or may be written.
syncline_status syncline_table_get_changed(syncline_table *table, void *copy, size_t count, int64_t *ids, size_t room, size_t *changed);

// Adds one number for each key. Returns at once, or with `wait` not 0 when everybody's next get sees it.
//
// The caller promises:
// `keys` has `count` keys and `values` as many numbers of the table's dtype.
syncline_status syncline_table_add_keys(syncline_table *table, const int64_t *keys, const void *values, size_t count, int wait);

// The number of each key.
//
// The caller promises:
// `keys` has `count` keys, and `out` has room for as many numbers of the table's dtype.
syncline_status syncline_table_get_keys(syncline_table *table, const int64_t *keys, void *out, size_t count);

// Begins to get the whole table and returns at once; compute meanwhile. Any number may be under way.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_table_get_async(syncline_table *table, syncline_future **out);

// Whether syncline_future_wait would return at once: 1 or 0.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_future_done(syncline_future *future, int *out);

// Waits for the values and copies their `size` bytes into `out`. `timeout` is in seconds; 0 waits as long as the get itself does.
// After SYNCLINE_TIMEOUT it may be waited for again.
//
// The caller promises:
// `out` has room for `size` bytes.
syncline_status syncline_future_wait(syncline_future *future, double timeout, void *out, size_t size);

// Frees a future; the get goes on unseen if it is still under way.
syncline_status syncline_future_free(syncline_future *future);

// How many rows and columns it has; an array has rows of one number, and a table of keys has 0 of both.
//
// The caller promises:
// `rows` and `cols` are NULL or may be written.
syncline_status syncline_table_shape(syncline_table *table, uint64_t *rows, uint64_t *cols);

// Copies the table's name, given or made up, into `out`, cut short where there is less room.
//
// The caller promises:
// `out` has room for `room` bytes.
syncline_status syncline_table_name(syncline_table *table, char *out, size_t room);

// Frees the handle. The table itself lives as long as the session.
syncline_status syncline_table_free(syncline_table *table);

// The tree of all workers of a session; worker w is node w + 1.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_tree_of(syncline_session *session, syncline_tree **out);

// A tree of one node, which needs nobody.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_tree_null(syncline_tree **out);

// Nodes of one host that know a number in common, `key`; 0 is the process id of their parent.
//
// The caller promises:
// `options` is NULL or can be read; `out` may be written.
syncline_status syncline_tree_localhost(uint32_t node,
                                        uint32_t nodes,
                                        uint32_t key,
                                        const syncline_tree_options *options,
                                        syncline_tree **out);

// Nodes that were all told where node 1 listens. The others reach this node at `host` and `port`.
//
// The caller promises:
// `host` and `root_host` are texts; `options` is NULL or can be read; `out` may be written.
syncline_status syncline_tree_static(uint32_t node,
                                     uint32_t nodes,
                                     const char *host,
                                     uint16_t port,
                                     const char *root_host,
                                     uint16_t root_port,
                                     const syncline_tree_options *options,
                                     syncline_tree **out);

// Nodes whose program has a place to leave an address: node 1 takes a port at `host` (`port` 0: a free one) and calls
// `publish` once, the others call `query` until it answers. Each node needs only its own of the two.
//
// The caller promises:
// `host` is a text; `publish` and `query` can be called with `user`; `options` is NULL or can be read; `out` may be written.
syncline_status syncline_tree_discovered(uint32_t node,
                                         uint32_t nodes,
                                         const char *host,
                                         uint16_t port,
                                         syncline_publish publish,
                                         syncline_query query,
                                         void *user,
                                         const syncline_tree_options *options,
                                         syncline_tree **out);

// The tasks of this Slurm step. They meet through PMI, or through a file in `folder`; NULL is the default folder.
//
// The caller promises:
// `folder` is NULL or a text; `options` is NULL or can be read; `out` may be written.
syncline_status syncline_tree_slurm(const char *folder, uint32_t tasks_per_gpu, const syncline_tree_options *options, syncline_tree **out);

// This node's number from 1, how many nodes there are, and which GPU of its host is this node's, from 1, 0 where nobody
// tells.
//
// The caller promises:
// The three are NULL or may be written.
syncline_status syncline_tree_where(syncline_tree *tree, uint32_t *node, uint32_t *nodes, uint32_t *gpu);

// What went over links so far, one entry per node that there is a link to, as far as there is `room`; tells how many there are.
//
// The caller promises:
// `out` has room for `room` entries; `count` is NULL or may be written.
syncline_status syncline_tree_stats(syncline_tree *tree, syncline_exchange *out, size_t room, size_t *count);

// Returns when every node has called it.
syncline_status syncline_tree_barrier(syncline_tree *tree);

// Leaves the tree's job, if it has one of its own, and frees the tree.
syncline_status syncline_tree_close(syncline_tree *tree);

// Combines `count` numbers over all nodes, in place and in order of node, and tells how many nodes had data of their own.
//
// The caller promises:
// `data` has `count` numbers of `dtype`, which nobody else uses meanwhile; `contributors` is NULL or may be written.
syncline_status syncline_tree_all_reduce(syncline_tree *tree, void *data, size_t count, int32_t dtype, int32_t op, uint32_t *contributors);

// What a node calls once that has no more data: with zeros it joins the calls of the others until nobody has any left.
// `data` holds zeros afterwards. Not for minima, maxima and products, of which zero is not the neutral element.
//
// The caller promises:
// `data` has `count` numbers of `dtype`, which nobody else uses meanwhile.
syncline_status syncline_tree_all_reduce_rest(syncline_tree *tree, void *data, size_t count, int32_t dtype, int32_t op);

// Combines `count` numbers over all nodes by a function, in place; it is called once per child of this node. All nodes must pass
// the same function.
//
// The caller promises:
// `data` has `count` numbers of `dtype`, which nobody else uses meanwhile; `merge` can be called with `user`;
// `contributors` is NULL or may be written.
syncline_status syncline_tree_all_reduce_with(syncline_tree *tree,
                                              void *data,
                                              size_t count,
                                              int32_t dtype,
                                              syncline_merge merge,
                                              void *user,
                                              uint32_t *contributors);

// Combines `count` numbers over all nodes into those of node `root`; the others' stay as they are.
//
// The caller promises:
// `data` has `count` numbers of `dtype`, which nobody else uses meanwhile.
syncline_status syncline_tree_reduce(syncline_tree *tree, void *data, size_t count, int32_t dtype, int32_t op, uint32_t root);

// Makes everybody's `count` numbers those of node `root`.
//
// The caller promises:
// `data` has `count` numbers of `dtype`, which nobody else uses meanwhile.
syncline_status syncline_tree_broadcast(syncline_tree *tree, void *data, size_t count, int32_t dtype, uint32_t root);

// Everybody's `count` numbers at node `root`, one after another in order of node; `room` must be nodes × count there. On the
// other nodes `out` is left alone and may be NULL.
//
// The caller promises:
// `mine` has `count` numbers of `dtype`; `out` has room for `room` of them on node `root`.
syncline_status syncline_tree_gather(syncline_tree *tree,
                                     const void *mine,
                                     size_t count,
                                     int32_t dtype,
                                     uint32_t root,
                                     void *out,
                                     size_t room);

// Everybody's `count` numbers, one after another in order of node; `room` must be nodes × count.
//
// The caller promises:
// `mine` has `count` numbers of `dtype`, and `out` has room for `room` of them.
syncline_status syncline_tree_all_gather(syncline_tree *tree, const void *mine, size_t count, int32_t dtype, void *out, size_t room);

// Combines `count` numbers over all nodes and gives this node its equal part of them; the first nodes take the remainder. `part`
// tells how many there are, which `room` must hold.
//
// The caller promises:
// `data` has `count` numbers of `dtype`, and `out` has room for `room` of them; `part` is NULL or may be written.
syncline_status syncline_tree_reduce_scatter(syncline_tree *tree,
                                             const void *data,
                                             size_t count,
                                             int32_t dtype,
                                             int32_t op,
                                             void *out,
                                             size_t room,
                                             size_t *part);

// Sends the i-th `count` numbers of `data` to node i + 1, and puts what each node sent here into `out`; both have nodes × count.
//
// The caller promises:
// `data` has nodes × `count` numbers of `dtype`, and `out` has room for as many.
syncline_status syncline_tree_all_to_all(syncline_tree *tree, const void *data, void *out, size_t count, int32_t dtype);

// Begins a syncline_tree_all_reduce and returns at once; `data` belongs to the operation until syncline_reduction_wait has
// succeeded or failed for good, or the reduction was freed.
//
// The caller promises:
// `data` has `count` numbers of `dtype`, which nobody else uses until the operation is over; `out` may be written.
syncline_status syncline_tree_all_reduce_start(syncline_tree *tree,
                                               void *data,
                                               size_t count,
                                               int32_t dtype,
                                               int32_t op,
                                               syncline_reduction **out);

// Whether syncline_reduction_wait would return at once, 1 or 0.
//
// The caller promises:
// `done` may be written.
syncline_status syncline_reduction_done(syncline_reduction *reduction, int *done);

// Waits `timeout` seconds (0: as long as the tree waits) until the numbers are reduced, and tells how many nodes had data. After
// SYNCLINE_TIMEOUT or SYNCLINE_INTERRUPTED with syncline_reduction_done still 0 it goes on: wait again.
//
// The caller promises:
// `contributors` is NULL or may be written.
syncline_status syncline_reduction_wait(syncline_reduction *reduction, double timeout, uint32_t *contributors);

// Frees a reduction; one that is under way is waited for, since it writes into the caller's memory.
syncline_status syncline_reduction_free(syncline_reduction *reduction);

// Combines values leaf by leaf over all nodes, in one operation. A leaf is a number, a text or an array; lists are walked in
// order, maps by key, and all nodes have the same structure.
//
// Leaves are combined by `op`, or by `merge` where it is not NULL: then once per leaf and child, and all nodes must pass the
// same function. With `zero` this node has no more data: each leaf becomes its zero, and the call takes part in those of the
// others until nobody has data left, and tells of 0 contributors; the value may then be NULL to take that of the last call.
//
// The caller promises:
// `merge` and `zero` can be called with `user`; `out` may be written; `contributors` is NULL or may be.
syncline_status syncline_tree_all_reduce_value(syncline_tree *tree,
                                               const syncline_value *value,
                                               int32_t op,
                                               syncline_merge_values merge,
                                               syncline_zero zero,
                                               void *user,
                                               syncline_value **out,
                                               uint32_t *contributors);

// Gives everybody the value of node `root`; the others may pass NULL.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_tree_broadcast_value(syncline_tree *tree, const syncline_value *value, uint32_t root, syncline_value **out);

// Gives everybody the value of node 1, as torch-ipc's scatter does.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_tree_scatter(syncline_tree *tree, const syncline_value *value, syncline_value **out);

// Everybody's values at node `root`, a list by node; NULL on the others. They need not be alike.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_tree_gather_value(syncline_tree *tree, const syncline_value *value, uint32_t root, syncline_value **out);

// Everybody's values, a list by node. They need not be alike.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_tree_all_gather_value(syncline_tree *tree, const syncline_value *value, syncline_value **out);

// Sends item i of a list, one for each node, to node i + 1, and gives the list of what each node sent here.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_tree_all_to_all_value(syncline_tree *tree, const syncline_value *list, syncline_value **out);

// Nothing.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_value_nil(syncline_value **out);

// True (not 0) or false.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_value_bool(int truth, syncline_value **out);

// A whole number.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_value_int(int64_t number, syncline_value **out);

// Any number.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_value_float(double number, syncline_value **out);

// A text, which is copied.
//
// The caller promises:
// `text` is a text; `out` may be written.
syncline_status syncline_value_text(const char *text, syncline_value **out);

// `size` bytes, which are copied.
//
// The caller promises:
// `data` has `size` bytes; `out` may be written.
syncline_status syncline_value_bytes(const void *data, size_t size, syncline_value **out);

// Numbers of one dtype in row-major order, which are copied; none of `axes` has no extent, so 0 of them is one number.
//
// The caller promises:
// `dims` has `axes` extents, `data` as many numbers as they multiply to; `out` may be written.
syncline_status syncline_value_tensor(int32_t dtype, const size_t *dims, size_t axes, const void *data, syncline_value **out);

// An empty list.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_value_list(syncline_value **out);

// An empty map.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_value_map(syncline_value **out);

// Puts `item` at the end of a list and takes it over: its handle is void afterwards, unless the call fails. No piece of the
// list may have been handed out, and the list must not be a piece itself.
syncline_status syncline_value_push(syncline_value *list, syncline_value *item);

// Puts a pair at the end of a map and takes both over, as syncline_value_push does. A key may be anything but nil; that
// none comes twice is the caller's business.
syncline_status syncline_value_put(syncline_value *map, syncline_value *key, syncline_value *value);

// What a value is, a syncline_kind, and how much of it there is: bytes of a text, items of a list, pairs of a map, numbers
// of a tensor, else 0.
//
// The caller promises:
// `kind` and `count` are NULL or may be written.
syncline_status syncline_value_what(const syncline_value *value, int32_t *kind, size_t *count);

// The truth of a SYNCLINE_BOOL, 1 or 0.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_value_as_bool(const syncline_value *value, int *out);

// The number of a SYNCLINE_INT, or of a SYNCLINE_FLOAT that is whole.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_value_as_int(const syncline_value *value, int64_t *out);

// The number of a SYNCLINE_FLOAT or a SYNCLINE_INT.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_value_as_float(const syncline_value *value, double *out);

// The bytes of a SYNCLINE_TEXT or SYNCLINE_BYTES, without a closing zero; borrowed, and yours until the value is freed.
//
// The caller promises:
// `data` and `size` may be written.
syncline_status syncline_value_as_bytes(const syncline_value *value, const char **data, size_t *size);

// The dtype, number of axes, extents and numbers of a SYNCLINE_TENSOR; what is pointed to is borrowed, and yours until the
// value is freed. The numbers are in row-major order and may lie at any address.
//
// The caller promises:
// The four are NULL or may be written.
syncline_status syncline_value_as_tensor(const syncline_value *value, int32_t *dtype, size_t *axes, const size_t **dims, const void **data);

// The item at `index`, from 0, of a list.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_value_item(const syncline_value *value, size_t index, syncline_value **out);

// The pair at `index`, from 0, of a map.
//
// The caller promises:
// `key` and `item` may be written.
syncline_status syncline_value_pair(const syncline_value *value, size_t index, syncline_value **key, syncline_value **item);

// Calls `visit` with each leaf of a nested value in the order in which trees visit them, and gives the value with what became of
// them: torch-ipc's walkTable.
//
// The caller promises:
// `visit` can be called with `user`; `out` may be written.
syncline_status syncline_value_walk(const syncline_value *value, syncline_visit visit, void *user, syncline_value **out);

// Frees a value, or a piece of one.
syncline_status syncline_value_free(syncline_value *value);

// Listens at `host` (NULL: 127.0.0.1; "unix:NAME" is a Unix socket) and `port` (0: a free one), and tells the port.
//
// Both sides need the same `token`; NULL takes SYNCLINE_TOKEN or what all programs of this user on this host know. Calls wait
// `timeout` seconds; 0 is 300.
//
// The caller promises:
// `host` and `token` are NULL or texts; `out` and `port_out` may be written, the latter may be NULL.
syncline_status syncline_server_open(const char *host, int port, const char *token, double timeout, syncline_server **out, int *port_out);

// Waits until `n` clients in total are connected, then calls `each` for every one, ascending by id, and tells how many there are.
//
// The caller promises:
// `each` can be called with `user`; `count` is NULL or may be written.
syncline_status syncline_server_clients(syncline_server *server, size_t n, syncline_each each, void *user, size_t *count);

// Calls `each` for every client that is connected and has this tag (NULL: all), descending by id if `descending` is not 0.
//
// The caller promises:
// `tag` is NULL or a text; `each` can be called with `user`; `count` is NULL or may be written.
syncline_status syncline_server_clients_with(syncline_server *server,
                                             const char *tag,
                                             int descending,
                                             syncline_each each,
                                             void *user,
                                             size_t *count);

// Sends a message to every client with this tag (NULL: all), and tells how many there are.
//
// The caller promises:
// `tag` is NULL or a text; `count` is NULL or may be written.
syncline_status syncline_server_broadcast(syncline_server *server, const syncline_value *value, const char *tag, size_t *count);

// The next message of any client with this tag (NULL: all), and whose it is. Clients take turns. Free the peer.
//
// The caller promises:
// `tag` is NULL or a text; `out` may be written, and `peer` is NULL or may be.
syncline_status syncline_server_recv_any(syncline_server *server, const char *tag, syncline_value **out, syncline_peer **peer);

// Closes all connections, stops listening and frees the server; the clients hear that it was on purpose.
syncline_status syncline_server_close(syncline_server *server);

// Sends a message to this client, as syncline_client_send does in the other direction.
syncline_status syncline_peer_send(syncline_peer *peer, const syncline_value *value);

// Sends numbers to this client, as syncline_client_send_array does.
//
// The caller promises:
// `dims` has `axes` extents, `data` as many numbers as they multiply to.
syncline_status syncline_peer_send_array(syncline_peer *peer, int32_t dtype, const size_t *dims, size_t axes, const void *data);

// The next message of this client.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_peer_recv(syncline_peer *peer, syncline_value **out);

// This client's next message if it is completely here, else NULL, without waiting.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_peer_try_recv(syncline_peer *peer, syncline_value **out);

// This client's next message into `data`, as syncline_client_recv_into does.
//
// The caller promises:
// `dims` has `axes` extents, `data` room for as many numbers as they multiply to, which nobody else uses meanwhile.
syncline_status syncline_peer_recv_into(syncline_peer *peer, int32_t dtype, const size_t *dims, size_t axes, void *data);

// The client's number, by which clients are ordered; 0 unless it was given one.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_peer_id(syncline_peer *peer, int64_t *out);

// Gives the client a number.
syncline_status syncline_peer_set_id(syncline_peer *peer, int64_t id);

// Copies the client's tag into `out`, cut short where there is less room; "" if it has none.
//
// The caller promises:
// `out` has room for `room` bytes.
syncline_status syncline_peer_tag(syncline_peer *peer, char *out, size_t room);

// Gives the client a tag, by which groups of clients are served; NULL takes it away.
//
// The caller promises:
// `tag` is NULL or a text.
syncline_status syncline_peer_set_tag(syncline_peer *peer, const char *tag);

// Copies where the client comes from into `out`: its IP address, or for a Unix socket its process.
//
// The caller promises:
// `out` has room for `room` bytes.
syncline_status syncline_peer_address(syncline_peer *peer, char *out, size_t room);

// Closes the client's connection and frees the handle; it hears that this was on purpose, and the server forgets it.
syncline_status syncline_peer_close(syncline_peer *peer);

// Frees the handle of a peer; the connection stays.
syncline_status syncline_peer_free(syncline_peer *peer);

// What went to and came from all clients so far.
//
// The caller promises:
// `sent` and `received` are NULL or may be written.
syncline_status syncline_server_stats(syncline_server *server, syncline_traffic *sent, syncline_traffic *received);

// Connects to a server, which may start later: it is tried again until the timeout. Arguments as syncline_server_open.
//
// The caller promises:
// `host` and `token` are NULL or texts; `out` may be written.
syncline_status syncline_client_connect(const char *host, int port, const char *token, double timeout, syncline_client **out);

// Sends a message; returns when the system has taken all of it, which is not when the other side has read it.
syncline_status syncline_client_send(syncline_client *client, const syncline_value *value);

// Sends numbers of one dtype straight from where they lie.
//
// The caller promises:
// `dims` has `axes` extents, `data` as many numbers as they multiply to.
syncline_status syncline_client_send_array(syncline_client *client, int32_t dtype, const size_t *dims, size_t axes, const void *data);

// The next message.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_client_recv(syncline_client *client, syncline_value **out);

// The next message if it is completely here, else NULL, without waiting.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_client_try_recv(syncline_client *client, syncline_value **out);

// The next message, a tensor of this very dtype and shape, into `data`. Anything else is SYNCLINE_SHAPE_MISMATCH; the message
// stays and can be received otherwise.
//
// The caller promises:
// `dims` has `axes` extents, `data` room for as many numbers as they multiply to, which nobody else uses meanwhile.
syncline_status syncline_client_recv_into(syncline_client *client, int32_t dtype, const size_t *dims, size_t axes, void *data);

// What went through this client so far.
//
// The caller promises:
// `sent` and `received` are NULL or may be written.
syncline_status syncline_client_stats(syncline_client *client, syncline_traffic *sent, syncline_traffic *received);

// Closes the connection, and frees the client; the server hears that it was on purpose.
syncline_status syncline_client_close(syncline_client *client);

// A family of which this process is the first member. Nothing of it has a name in a file system: it ends with its last process.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_family_create(syncline_family **out);

// Copies a line into `out` with which another process of this user joins, by argument, environment or pipe, while this one lives.
//
// The caller promises:
// `out` has room for `room` bytes; 128 are enough.
syncline_status syncline_family_invitation(syncline_family *family, char *out, size_t room);

// Joins the family that a line of syncline_family_invitation invites into.
//
// The caller promises:
// `invitation` is a text; `out` may be written.
syncline_status syncline_family_accept(const char *invitation, syncline_family **out);

// What the family holds now.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_family_look(syncline_family *family, syncline_family_facts *out);

// Frees the handle. The membership ends with the last object of the family that this process holds.
syncline_status syncline_family_free(syncline_family *family);

// Makes a channel with room for `capacity` items; 0 is as many as memory holds. With `leases` not 0, items may be read by
// syncline_channel_lease.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_channel_create(syncline_family *family, size_t capacity, int leases, syncline_channel **out);

// The channel that a value of syncline_channel_handle leads to.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_channel_open(syncline_family *family, const syncline_value *handle, syncline_channel **out);

// A value that leads to the channel, to be sent through anything else of its family. It keeps the channel alive. The first one moves the
// channel into the family's memory, where processes other than its maker's find it; that fails, and changes nothing, where there is no room.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_channel_handle(syncline_channel *channel,
                                        syncline_value **out);

// Writes an item; waits `timeout` seconds for room in a channel that is full, 0 as long as it takes. `state` tells whether it was
// written (SYNCLINE_OPEN) or the channel was closed before.
//
// The caller promises:
// `state` is NULL or may be written.
syncline_status syncline_channel_write(syncline_channel *channel, const syncline_value *value, double timeout, int32_t *state);

// Writes `count` items together; else as syncline_channel_write.
//
// The caller promises:
// `values` has `count` values; `state` is NULL or may be written.
syncline_status syncline_channel_write_all(syncline_channel *channel,
                                           const syncline_value *const *values,
                                           size_t count,
                                           double timeout,
                                           int32_t *state);

// The next item; waits for one `timeout` seconds, 0 as long as it takes. NULL and SYNCLINE_DRAINED when there will be none.
//
// The caller promises:
// `state` is NULL or may be written; `item` may be written.
syncline_status syncline_channel_read(syncline_channel *channel, double timeout, int32_t *state, syncline_value **item);

// The next item if there is one, else NULL.
//
// The caller promises:
// As syncline_channel_read.
syncline_status syncline_channel_try_read(syncline_channel *channel, int32_t *state, syncline_value **item);

// A list of at least one and at most `most` items, those that are there; waits for the first as syncline_channel_read does. It
// is empty only when the channel is drained.
//
// The caller promises:
// `state` is NULL or may be written; `items` may be written.
syncline_status syncline_channel_read_many(syncline_channel *channel, size_t most, double timeout, int32_t *state, syncline_value **items);

// The next item of a channel with leases, which comes back to the channel if this process dies before it is done with it. NULL and
// `over` 1 when there will be none.
//
// The caller promises:
// `item` may be written; `over` is NULL or may be.
syncline_status syncline_channel_lease(syncline_channel *channel, double timeout, syncline_item **item, int *over);

// The next item of a channel with leases if there is one, else NULL.
//
// The caller promises:
// As syncline_channel_lease.
syncline_status syncline_channel_try_lease(syncline_channel *channel, syncline_item **item, int *over);

// Takes an item from the first of `count` channels that has one, and tells which; they take turns. NULL when all are drained;
// `which` is then `count`.
//
// The caller promises:
// `channels` has `count` of them; `which` and `state` are NULL or may be written; `item` may be written.
syncline_status syncline_select(syncline_channel *const *channels,
                                size_t count,
                                double timeout,
                                size_t *which,
                                int32_t *state,
                                syncline_value **item);

// Takes no more items and wakes whoever waits; what is in it can still be read. A second time does nothing.
syncline_status syncline_channel_close(syncline_channel *channel);

// How far the channel is (a syncline_channel_state), how many items it has, and how many it has room for (0: as many as memory holds).
//
// The caller promises:
// The three are NULL or may be written.
syncline_status syncline_channel_look(syncline_channel *channel, int32_t *state, size_t *num_items, size_t *capacity);

// Frees the handle; the channel ends with the last handle to it, in whatever process.
syncline_status syncline_channel_free(syncline_channel *channel);

// Its value, which outlives the item.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_item_value(syncline_item *item, syncline_value **out);

// Its number in the queue (modulo 2³²), of an answer that of its question; how often it was taken before and came back; and
// whether it is on a lease, 1 or 0.
//
// The caller promises:
// The three are NULL or may be written.
syncline_status syncline_item_look(syncline_item *item, uint64_t *id, uint32_t *attempts, int *leased);

// Finishes the item and frees it.
syncline_status syncline_item_done(syncline_item *item);

// Gives the item to whoever reads next, ahead of all newer ones, and frees it.
syncline_status syncline_item_give_back(syncline_item *item);

// Answers a question of a workqueue, finishes it and frees it, as one step: whoever dies, each question is answered exactly once.
syncline_status syncline_item_answer(syncline_item *item, const syncline_value *answer);

// The workqueue of this name in the family, which the first call makes; NULL makes one without a name. `made` tells whether this
// call did, 1 or 0.
//
// The caller promises:
// `name` is NULL or a text; `out` may be written; `made` is NULL or may be.
syncline_status syncline_workqueue_create(syncline_family *family, const char *name, syncline_workqueue **out, int *made);

// The workqueue that a value of syncline_workqueue_handle leads to.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_workqueue_open(syncline_family *family, const syncline_value *handle, syncline_workqueue **out);

// A value that leads to the workqueue, to be sent through anything else of its family.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_workqueue_handle(syncline_workqueue *queue, syncline_value **out);

// Another handle to the same queue that is its owner's, whichever thread uses it. Free both.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_workqueue_as_owner(syncline_workqueue *queue, syncline_workqueue **out);

// Another handle to the same queue that is a worker's, whichever thread uses it. Free both.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_workqueue_as_worker(syncline_workqueue *queue, syncline_workqueue **out);

// Writes a question (the owner) or an answer (anybody else).
syncline_status syncline_workqueue_write(syncline_workqueue *queue, const syncline_value *value, double timeout);

// Writes `count` questions or answers together.
//
// The caller promises:
// `values` has `count` values.
syncline_status syncline_workqueue_write_all(syncline_workqueue *queue, const syncline_value *const *values, size_t count, double timeout);

// Takes the oldest answer (the owner) or question (anybody else), which is leased: see syncline_item. Waits for one `timeout`
// seconds, 0 as long as it takes. NULL and `over` 1 once the queue is closed and everything in it is finished.
//
// The caller promises:
// `item` may be written; `over` is NULL or may be.
syncline_status syncline_workqueue_read(syncline_workqueue *queue, double timeout, syncline_item **item, int *over);

// Takes the oldest answer or question if there is one, else NULL.
//
// The caller promises:
// As syncline_workqueue_read.
syncline_status syncline_workqueue_try_read(syncline_workqueue *queue, syncline_item **item, int *over);

// Waits until every question that was written before is finished, those in progress too. For the owner.
syncline_status syncline_workqueue_drain(syncline_workqueue *queue, double timeout);

// Takes no more questions and wakes whoever waits; what is in it can still be read and answered.
syncline_status syncline_workqueue_close(syncline_workqueue *queue);

// What the workqueue holds now.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_workqueue_look(syncline_workqueue *queue, syncline_workqueue_facts *out);

// Frees the handle; the queue ends with the last handle to it, in whatever process.
syncline_status syncline_workqueue_free(syncline_workqueue *queue);

// Makes a mutex.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_mutex_create(syncline_family *family, syncline_mutex **out);

// The mutex that a value of syncline_mutex_handle leads to.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_mutex_open(syncline_family *family, const syncline_value *handle, syncline_mutex **out);

// A value that leads to the mutex, to be sent through anything else of its family.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_mutex_handle(syncline_mutex *mutex, syncline_value **out);

// Locks it for this thread, which may do so again; waits `timeout` seconds, 0 as long as it takes. `recovered` 1 tells that the last
// holder died with it: what it guards may be half changed.
//
// The caller promises:
// `recovered` is NULL or may be written.
syncline_status syncline_mutex_lock(syncline_mutex *mutex, double timeout, int *recovered);

// Unlocks it once; SYNCLINE_CONFIGURATION if this thread does not hold it.
syncline_status syncline_mutex_unlock(syncline_mutex *mutex);

// Waits until `count` threads, of whatever processes, have called it; then all pass, and it can be used again.
syncline_status syncline_mutex_barrier(syncline_mutex *mutex, size_t count, double timeout);

// Frees the handle; the mutex ends with the last handle to it, in whatever process.
syncline_status syncline_mutex_free(syncline_mutex *mutex);

// Makes a table with the pairs of a map, or the items of a list under 1, 2, 3 …; NULL makes an empty one.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_sharedtable_create(syncline_family *family, const syncline_value *initial, syncline_sharedtable **out);

// The table that a value of syncline_sharedtable_handle leads to.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_sharedtable_open(syncline_family *family, const syncline_value *handle, syncline_sharedtable **out);

// A value that leads to the table, to be sent through anything else of its family.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_sharedtable_handle(syncline_sharedtable *table, syncline_value **out);

// Writes `value` under `key`, anything but nil; `existed` tells whether there was one before, 1 or 0.
//
// The caller promises:
// `existed` is NULL or may be written.
syncline_status syncline_sharedtable_set(syncline_sharedtable *table, const syncline_value *key, const syncline_value *value, int *existed);

// What stands under `key`; NULL if nothing does.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_sharedtable_get(syncline_sharedtable *table, const syncline_value *key, syncline_value **out);

// Removes `key`; `existed` tells whether something stood there, 1 or 0.
//
// The caller promises:
// `existed` is NULL or may be written.
syncline_status syncline_sharedtable_remove(syncline_sharedtable *table, const syncline_value *key, int *existed);

// How many keys it has, and how many bytes it takes.
//
// The caller promises:
// Both are NULL or may be written.
syncline_status syncline_sharedtable_look(syncline_sharedtable *table, size_t *len, size_t *bytes);

// All pairs at this moment, as a map.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_sharedtable_pairs(syncline_sharedtable *table, syncline_value **out);

// Frees the handle; the table ends with the last handle to it, in whatever process.
syncline_status syncline_sharedtable_free(syncline_sharedtable *table);

// Makes a pool of `n` threads. With `close_on_last_task` not 0 they end once every task that was added has; otherwise when the pool is
// freed.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_pool_create(size_t n, int close_on_last_task, syncline_pool **out);

// Runs one task on a thread of its own: a pool of one that ends with it. Its number is 1.
//
// The caller promises:
// `task` can be called with `user` from another thread; `out` may be written.
syncline_status syncline_task_start(syncline_task task, void *user, syncline_pool **out);

// Adds a task and tells its number: 1, 2, …
//
// The caller promises:
// `task` can be called with `user` from another thread; `id` is NULL or may be written.
syncline_status syncline_pool_add(syncline_pool *pool, syncline_task task, void *user, uint64_t *id);

// Whether task `id` has ended (0: all of them), and whether there is one whose result nobody has taken; 1 or 0.
//
// The caller promises:
// Both are NULL or may be written.
syncline_status syncline_pool_look(syncline_pool *pool, uint64_t id, int *done, int *has_task);

// Waits `timeout` seconds (0: as long as it takes) for task `id` (0: the first whose result was not taken) and gives its result,
// once: NULL if it was taken before. SYNCLINE_CALLER, once, if the task failed.
//
// The caller promises:
// `result` may be written.
syncline_status syncline_pool_result(syncline_pool *pool, uint64_t id, double timeout, syncline_value **result);

// Frees the pool. Tasks that nobody has begun are forgotten, those that run go on until they end.
syncline_status syncline_pool_free(syncline_pool *pool);

// Starts `n` threads, each of which runs `work(state, user, id, &result)`, and returns at once. With `init` each thread first makes a
// state of its own by it; NULL: the state is NULL. `user` is for all of them.
//
// The caller promises:
// `init` and `work` can be called with `user` from other threads until they have ended; `out` may be written.
syncline_status syncline_map_start(size_t n, syncline_init init, syncline_work work, void *user, syncline_map **out);

// Waits until all have ended and gives their results, a list by id. If any has failed it is SYNCLINE_CALLER with the words of each. At
// the end of `timeout` seconds (0: as long as it takes) it may be called again. A second list is empty.
//
// The caller promises:
// `results` may be written.
syncline_status syncline_map_join(syncline_map *map, double timeout, syncline_value **results);

// SYNCLINE_CALLER if some have failed so far, with the words of each, while others may still run. They no longer count in
// syncline_map_join.
syncline_status syncline_map_check_errors(syncline_map *map);

// How many have ended, and how many there are.
//
// The caller promises:
// Both are NULL or may be written.
syncline_status syncline_map_progress(syncline_map *map, size_t *ended, size_t *of);

// Frees the handle. Threads that still run do so until they end.
syncline_status syncline_map_free(syncline_map *map);

// Locks a file until the lock is freed or this process ends. Waits `timeout` seconds, 0 as long as it takes, and makes the file if it
// is not there; with `no_block` not 0 it does neither, and the lock is NULL if somebody else holds it.
//
// The caller promises:
// `path` is a text; `out` may be written.
syncline_status syncline_flock_lock(const char *path, int no_block, double timeout, syncline_flock **out);

// Lets go of the file.
syncline_status syncline_flock_free(syncline_flock *lock);

// Starts a program with standard input and output as pipes. A `file` with a slash is a path, any other is looked for in PATH. `args` and
// `env` end with NULL, or are NULL; `env` has "NAME=value" entries, and replaces this process's environment unless it is empty.
//
// The caller promises:
// `file` is a text; `args` and `env` are NULL or texts and then NULL; `out` may be written.
syncline_status syncline_spawn(const char *file, const char *const *args, const char *const *env, syncline_child **out);

// The number of its process, and whether it has not ended yet, 1 or 0.
//
// The caller promises:
// Both are NULL or may be written.
syncline_status syncline_child_look(syncline_child *child, int64_t *pid, int *running);

// Writes `size` bytes to its standard input; what it says meanwhile is kept.
//
// The caller promises:
// `data` has `size` bytes.
syncline_status syncline_child_write(syncline_child *child, const void *data, size_t size, double timeout);

// Closes its standard input. A second time does nothing.
syncline_status syncline_child_close_stdin(syncline_child *child);

// The next line of its standard output without the newline, as SYNCLINE_BYTES; NULL at its end.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_child_read_line(syncline_child *child, double timeout, syncline_value **out);

// All that its standard output still says, as SYNCLINE_BYTES; NULL if that has ended before.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_child_read_all(syncline_child *child, double timeout, syncline_value **out);

// At most `most` bytes of its standard output, as soon as there are any; NULL at its end.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_child_read_some(syncline_child *child, size_t most, double timeout, syncline_value **out);

// Sends `signal` ("TERM", "KILL" or NULL for none), closes its standard input, forgets what it still says, waits until it has ended
// and tells how: the code it returned, or -1 and the signal that ended it, 0 if none did. Then only syncline_child_free is left.
//
// The caller promises:
// `signal` is NULL or a text; `code` and `by_signal` are NULL or may be written.
syncline_status syncline_child_wait(syncline_child *child, const char *signal, double timeout, int *code, int *by_signal);

// Frees a child.
syncline_status syncline_child_free(syncline_child *child);

// Makes a store of this type: "local", "device", "dist_sync", "dist_async" or one of their other names, in any case. A distributed one belongs
// to `session`, and every worker makes the same ones in the same order; a local one needs none (NULL).
//
// The caller promises:
// `type_name` is a text; `out` may be written.
syncline_status syncline_kvstore_create(syncline_session *session,
                                        const char *type_name,
                                        syncline_kvstore **out);

// Frees the handle. Keys of a local store end with its last handle, those of a distributed one with the session.
syncline_status syncline_kvstore_free(syncline_kvstore *store);

// Copies the type, in lower case, into `out`, cut short where there is less room.
//
// The caller promises:
// `out` has room for `room` bytes.
syncline_status syncline_kvstore_type(syncline_kvstore *store, char *out, size_t room);

// This process's number among the workers, and how many there are: 0 and 1 in a local store.
//
// The caller promises:
// `rank` and `num_workers` are NULL or may be written.
syncline_status syncline_kvstore_where(syncline_kvstore *store, int32_t *rank, int32_t *num_workers);

// How many processes of the job died; 0 in a local store.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_kvstore_num_dead_node(syncline_kvstore *store, int32_t *out);

// Whether the store can do something, 1 or 0; "optimizer" is all that is ever asked.
//
// The caller promises:
// `capability` is a text; `out` may be written.
syncline_status syncline_kvstore_is_capable(syncline_kvstore *store, const char *capability, int *out);

// Returns when every worker has called it, after what they queued before.
syncline_status syncline_kvstore_barrier(syncline_kvstore *store);

// Returns when all calls of this process that go on in the background have ended.
syncline_status syncline_kvstore_flush(syncline_kvstore *store);

// Makes pushes smaller: `words` are `count` names and values in turn, such as "type" "2bit" "threshold" "0.5". Types are 2bit, 1bit, fp16, bf16,
// int8 and topk (with "ratio"); "pull" "true" makes pulls smaller too (fp16, bf16, int8). Every worker sets it, before its first push.
//
// The caller promises:
// `words` has 2 · `count` texts.
syncline_status syncline_kvstore_set_gradient_compression(syncline_kvstore *store,
                                                          const char *const *words,
                                                          size_t count);

// Writes what the optimizer keeps of all keys, residuals of compression, and with `with_optimizer` not 0 the optimizer, to one file. Every worker
// of a distributed store calls it.
//
// The caller promises:
// `path` is a text.
syncline_status syncline_kvstore_save_optimizer_states(syncline_kvstore *store,
                                                       const char *path,
                                                       int with_optimizer);

// Reads such a file, written by any number of workers and servers. Every worker of a distributed store calls it.
//
// The caller promises:
// `path` is a text.
syncline_status syncline_kvstore_load_optimizer_states(syncline_kvstore *store, const char *path);

// Sends a command by the numbers that MXNet gives them, and copies what became of it, in words, into `answer`, cut short where there is less
// room. Nothing that is sent is ever executed.
//
// The caller promises:
// `body` has `size` bytes; `answer` is NULL or has room for `room` bytes.
syncline_status syncline_kvstore_send_command_to_servers(syncline_kvstore *store,
                                                         int64_t head,
                                                         const void *body,
                                                         size_t size,
                                                         char *answer,
                                                         size_t room);

// Pushes as syncline_kvstore_push, but returns at once; values are copied first. Calls of one key keep their order; among keys the larger
// `priority` goes first. The error of such a push is that of its future, and of the next pull of its key. `out` may be NULL.
//
// The caller promises:
// As syncline_kvstore_push; `out` is NULL or may be written.
syncline_status syncline_kvstore_push_async(syncline_kvstore *store,
                                            const syncline_kv_key *keys,
                                            const syncline_kv_array *values,
                                            size_t count,
                                            int32_t priority,
                                            syncline_kv_future **out);

// Begins to pull `count` keys and returns at once; syncline_kv_future_read has the values.
//
// The caller promises:
// `keys` has `count` keys; `out` may be written.
syncline_status syncline_kvstore_pull_async(syncline_kvstore *store,
                                            const syncline_kv_key *keys,
                                            size_t count,
                                            int32_t priority,
                                            syncline_kv_future **out);

// Whether syncline_kv_future_wait would return at once: 1 or 0.
//
// The caller promises:
// `out` may be written.
syncline_status syncline_kv_future_done(syncline_kv_future *future, int *out);

// Waits until the call has ended, and tells how. `timeout` is in seconds; 0 waits as long as the call itself does. After SYNCLINE_TIMEOUT it may be
// waited for again.
syncline_status syncline_kv_future_wait(syncline_kv_future *future,
                                        double timeout);

// Waits for a pull and copies its values into `count` arrays, in the order of the keys.
//
// The caller promises:
// `outs` has `count` arrays with room for what is written; nobody else uses it meanwhile.
syncline_status syncline_kv_future_read(syncline_kv_future *future, double timeout, const syncline_kv_array *outs, size_t count);

// Frees a future; the call goes on unseen if it is still under way.
syncline_status syncline_kv_future_free(syncline_kv_future *future);

// Makes `count` keys with these values. Every worker makes the same ones, in any order, before its first push of them; worker 0's values count.
//
// The caller promises:
// `keys` has `count` keys and `values` as many arrays.
syncline_status syncline_kvstore_init(syncline_kvstore *store,
                                      const syncline_kv_key *keys,
                                      const syncline_kv_array *values,
                                      size_t count);

// Adds up the values of each key and lets the updater, the optimizer or nobody decide what they do to the stored one.
//
// The caller promises:
// As syncline_kvstore_init.
syncline_status syncline_kvstore_push(syncline_kvstore *store, const syncline_kv_key *keys, const syncline_kv_array *values, size_t count);

// Copies stored values into `outs`. Contains every earlier push of this worker. With `ignore_sparse` not 0 row-sparse outputs are left alone.
//
// The caller promises:
// As syncline_kvstore_init, with room for what is written; nobody else uses it meanwhile.
syncline_status syncline_kvstore_pull(syncline_kvstore *store,
                                      const syncline_kv_key *keys,
                                      const syncline_kv_array *outs,
                                      size_t count,
                                      int32_t ignore_sparse);

// Pushes `values` and copies what is stored then into `outs`, which may be the values themselves; NULL means those.
//
// The caller promises:
// As syncline_kvstore_push and syncline_kvstore_pull, for `num_values` keys and values and `num_outs` keys and outputs.
syncline_status syncline_kvstore_pushpull(syncline_kvstore *store,
                                          const syncline_kv_key *keys,
                                          const syncline_kv_array *values,
                                          size_t num_values,
                                          const syncline_kv_key *out_keys,
                                          const syncline_kv_array *outs,
                                          size_t num_outs);

// Makes keys, as syncline_kvstore_init, and copies worker 0's values into `outs`; those may be the values themselves.
//
// The caller promises:
// As syncline_kvstore_pushpull.
syncline_status syncline_kvstore_broadcast(syncline_kvstore *store,
                                           const syncline_kv_key *keys,
                                           const syncline_kv_array *values,
                                           size_t num_values,
                                           const syncline_kv_key *out_keys,
                                           const syncline_kv_array *outs,
                                           size_t num_outs);

// Fills `count` row-sparse arrays with exactly the rows that are wanted, of keys that were made with rows.
//
// The caller promises:
// `wanted` has `count` wishes, each with its ids.
syncline_status syncline_kvstore_row_sparse_pull(syncline_kvstore *store, const syncline_kv_rows *wanted, size_t count);

// Lets the optimizer of this name decide what a push does; one worker's call is enough, and the newest counts. `options` is NULL or a JSON object
// with the names and defaults of MXNet: `{"learning_rate": 0.1, "momentum": 0.9, "lr_mult": {"bias": 2}, "lr_scheduler": {"name": "factor", "step": 10,
// "factor": 0.5}}`. States begin anew, unless `keep_states` is not 0 and only numbers of the present optimizer change.
//
// The caller promises:
// `name` is a text; `options` is NULL or one.
syncline_status syncline_kvstore_set_optimizer(syncline_kvstore *store,
                                               const char *name,
                                               const char *options,
                                               int32_t keep_states);

// Changes the learning rate, at the servers too; states stay.
syncline_status syncline_kvstore_set_learning_rate(syncline_kvstore *store, double rate);

// Copies all options of an optimizer, those that were given and the defaults, as a JSON object into `out`; `size`, if not NULL, tells how many bytes
// that takes with its closing zero. Cut short where there is less room. Refuses what makes no sense, so it also checks.
//
// The caller promises:
// `name` is a text; `options` is NULL or one; `out` is NULL or has room for `room` bytes; `size` is NULL or may be written.
syncline_status syncline_optimizer_options(const char *name,
                                           const char *options,
                                           char *out,
                                           size_t room,
                                           size_t *size);

// Makes a row-sparse array of this dtype and these extents from `num_ids` ids in any order and a row of numbers for each, `count` in all.
// Rows of an id that stands twice are added. No ids are fine: a pull fills it.
//
// The caller promises:
// `dims` has `axes` extents, `ids` `num_ids` ids, `values` `count` numbers of `dtype`; `out` may be written.
syncline_status syncline_rows_create(int32_t dtype,
                                     const size_t *dims,
                                     size_t axes,
                                     const int64_t *ids,
                                     size_t num_ids,
                                     const void *values,
                                     size_t count,
                                     syncline_rows **out);

// How many rows are there, and how many numbers they have together.
//
// The caller promises:
// `num_ids` and `count` are NULL or may be written.
syncline_status syncline_rows_count(syncline_rows *rows, size_t *num_ids, size_t *count);

// Copies the ids and the numbers, as many as syncline_rows_count says.
//
// The caller promises:
// `ids` has room for `num_ids` ids and `values` for `count` numbers of its dtype.
syncline_status syncline_rows_read(syncline_rows *rows, int64_t *ids, size_t num_ids, void *values, size_t count);

// Frees it.
syncline_status syncline_rows_free(syncline_rows *rows);

// Lets a function decide what a push does, with the caller's own key; NULL lets pushes replace what is stored. Local stores only: functions
// do not travel.
//
// The caller promises:
// `updater` can be called with `user` for as long as the store has it.
syncline_status syncline_kvstore_set_updater(syncline_kvstore *store, syncline_kv_updater updater, void *user);

// Joins the job. Flags such as `-sync=true` (or `--sync=true`) and `-updater_type=sgd` are taken out of `argv`, as Multiverso does;
// others are left.
//
// The caller promises:
// `argc` and `argv` are NULL, or those of `main`.
void MV_Init(int *argc, char **argv);

// Leaves the job.
void MV_ShutDown(void);

// Returns when every process has called it.
void MV_Barrier(void);

// How many workers there are; -1 before MV_Init.
int MV_NumWorkers(void);

// How many servers there are; -1 before MV_Init.
int MV_NumServers(void);

// This worker's number; -1 when it is none.
int MV_WorkerId(void);

// This server's number; -1 when it is none.
int MV_ServerId(void);

// This process's number; -1 before MV_Init.
int MV_Rank(void);

// How many processes there are; -1 before MV_Init.
int MV_Size(void);

// Sums `count` floats over all processes, in place: what the original's `MV_Aggregate<float>` does.
//
// The caller promises:
// `data` has `count` floats, which nobody else uses meanwhile.
void MV_Aggregate(float *data, int count);

// Makes an array table of `size` zeros; every process makes the same tables in the same order.
//
// The caller promises:
// `out` may be written.
void MV_NewArrayTable(int size, TableHandler *out);

// Makes a matrix table of zeros; every process makes the same tables in the same order.
//
// The caller promises:
// `out` may be written.
void MV_NewMatrixTable(int num_row, int num_col, TableHandler *out);

// Gets all `size` floats of an array table.
//
// The caller promises:
// `data` has room for `size` floats.
void MV_GetArrayTable(TableHandler handler, float *data, int size);

// Adds `size` floats to an array table and returns when the add is applied.
//
// The caller promises:
// `data` has `size` floats.
void MV_AddArrayTable(TableHandler handler, float *data, int size);

// Adds `size` floats to an array table and returns at once; `data` may be changed again.
//
// The caller promises:
// `data` has `size` floats.
void MV_AddAsyncArrayTable(TableHandler handler, float *data, int size);

// Gets all `size` floats of a matrix table, row by row.
//
// The caller promises:
// `data` has room for `size` floats.
void MV_GetMatrixTableAll(TableHandler handler, float *data, int size);

// Adds `size` floats to a matrix table and returns when the add is applied.
//
// The caller promises:
// `data` has `size` floats.
void MV_AddMatrixTableAll(TableHandler handler, float *data, int size);

// Adds `size` floats to a matrix table and returns at once; `data` may be changed again.
//
// The caller promises:
// `data` has `size` floats.
void MV_AddAsyncMatrixTableAll(TableHandler handler, float *data, int size);

// Gets the rows of these ids, in their order.
//
// The caller promises:
// `data` has room for `size` floats, and `row_ids` has `row_ids_n` ids.
void MV_GetMatrixTableByRows(TableHandler handler, float *data, int size, int *row_ids, int row_ids_n);

// Adds one row for each id and returns when the add is applied.
//
// The caller promises:
// `data` has `size` floats, and `row_ids` has `row_ids_n` ids.
void MV_AddMatrixTableByRows(TableHandler handler, float *data, int size, int *row_ids, int row_ids_n);

// Adds one row for each id and returns at once; `data` may be changed again.
//
// The caller promises:
// `data` has `size` floats, and `row_ids` has `row_ids_n` ids.
void MV_AddAsyncMatrixTableByRows(TableHandler handler, float *data, int size, int *row_ids, int row_ids_n);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SYNCLINE_H */
