"""Keras on handwritten digits: a share of the data and one callback more.

Four processes:      syncline run -n 4 python keras_digits.py
"""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import digits_data
import keras

import syncline as sl

EPOCHS, BATCH = 6, 32


def network() -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(loss="sparse_categorical_crossentropy", optimizer=keras.optimizers.SGD(0.1, 0.9), metrics=["accuracy"])
    return model


def main() -> None:
    images, labels, test_images, test_labels = digits_data.load()
    images, test_images = images.reshape(-1, 8, 8, 1), test_images.reshape(-1, 8, 8, 1)
    with sl.init():
        workers = sl.num_workers()
        mine = sl.data.shard(len(images), shuffle=True).indices()
        model = network()
        model.fit(
            images[mine],
            labels[mine],
            batch_size=max(1, BATCH // workers),
            epochs=EPOCHS,
            verbose=2,  # one worker prints
            callbacks=[sl.keras.SyncCallback(every=4)],
        )
        if sl.is_master_worker():
            right = model.evaluate(test_images, test_labels, verbose=0, return_dict=True)["accuracy"]
            print(f"{workers} processes: test accuracy {right:.4f}")
        master = sl.is_master_worker()
    if master:
        alone = network()
        alone.fit(images, labels, batch_size=BATCH, epochs=EPOCHS, verbose=0)
        right = alone.evaluate(test_images, test_labels, verbose=0, return_dict=True)["accuracy"]
        print(f"one process alone: test accuracy {right:.4f}")


if __name__ == "__main__":
    main()
