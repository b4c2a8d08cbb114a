/* Four threads answer questions; a question whose worker fails goes to another. */
#include <stdio.h>
#include <stdlib.h>

#include "syncline.h"

static void must(syncline_status status)
{
    if (status != SYNCLINE_OK) {
        fprintf(stderr, "%s: %s\n", syncline_status_name(status), syncline_last_error());
        exit(1);
    }
}

static int64_t number_in(syncline_item *item)
{
    syncline_value *value;
    int64_t number;
    must(syncline_item_value(item, &value));
    must(syncline_value_as_int(value, &number));
    must(syncline_value_free(value));
    return number;
}

static int work(void *state, void *queue, size_t id, syncline_value **result)
{
    syncline_item *question;
    syncline_value *answer;
    int64_t answered = 0;
    (void)state, (void)id;
    for (;; ++answered) {
        must(syncline_workqueue_read(queue, 10, &question, NULL));
        if (question == NULL) return (int)syncline_value_int(answered, result); /* closed, and all are answered */
        int64_t number = number_in(question);
        must(syncline_value_int(number * number, &answer));
        must(syncline_item_answer(question, answer)); /* answered and finished in one step */
        must(syncline_value_free(answer));
    }
}

int main(void)
{
    syncline_family *family;
    syncline_workqueue *queue;
    syncline_map *workers;
    syncline_value *value;
    syncline_item *answer;
    int64_t sum = 0;

    must(syncline_family_create(&family));
    must(syncline_workqueue_create(family, NULL, &queue, NULL));
    must(syncline_map_start(4, NULL, work, queue, &workers));
    for (int64_t number = 1; number <= 100; ++number) {
        must(syncline_value_int(number, &value));
        must(syncline_workqueue_write(queue, value, 10));
        must(syncline_value_free(value));
    }
    must(syncline_workqueue_close(queue));
    for (;;) {
        must(syncline_workqueue_read(queue, 10, &answer, NULL));
        if (answer == NULL) break;
        sum += number_in(answer);
        must(syncline_item_done(answer));
    }
    must(syncline_map_join(workers, 10, &value)); /* how many each has answered */
    printf("the squares of 1 to 100 sum to %lld\n", (long long)sum);
    must(syncline_value_free(value));
    must(syncline_map_free(workers));
    must(syncline_workqueue_free(queue));
    must(syncline_family_free(family));
    return sum == 338350 ? 0 : 1;
}
