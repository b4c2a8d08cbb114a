"""The manual's block on Keras, with a model and data around it."""

import legacy
import multiverso as mv
import numpy
mv.init()
from keras.layers import Dense
from keras.models import Sequential

batch_size, nb_epoch = 8, 2
X_train = X_test = numpy.random.RandomState(mv.worker_id()).randn(32, 4).astype("float32")
Y_train = Y_test = numpy.eye(4, dtype="float32")[X_train.argmax(axis=1)]

# the block as it stands in the manual
from multiverso.theano_ext.keras_ext.callbacks import MVCallback

model = Sequential()
# build and compile your model here
model.add(Dense(4, input_dim=4, activation="softmax"))
model.compile(loss="categorical_crossentropy", optimizer="sgd")

# Train the model
model.fit(X_train, Y_train,
          batch_size=batch_size,
          nb_epoch=nb_epoch,
          validation_data=(X_test, Y_test),
          shuffle=True,
          callbacks=[MVCallback(model)])  # The only difference is that you add callbacks here

mv.barrier()
print("\nthe block has run")
mv.shutdown()
