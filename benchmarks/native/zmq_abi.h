/* The few symbols of libzmq's stable C interface that the load generator and the forwarder need. The library that pyzmq
 * carries has no headers beside it, so they are declared here. */
#ifndef PISUB_ZMQ_ABI_H
#define PISUB_ZMQ_ABI_H

#include <stddef.h>

enum { ZMQ_DEALER = 5, ZMQ_ROUTER = 6 };
enum { ZMQ_SNDHWM = 23, ZMQ_RCVHWM = 24, ZMQ_RCVTIMEO = 27, ZMQ_LINGER = 17, ZMQ_RCVMORE = 13, ZMQ_ROUTER_MANDATORY = 33 };
enum { ZMQ_DONTWAIT = 1, ZMQ_SNDMORE = 2 };

extern void *zmq_ctx_new(void);
extern int zmq_ctx_term(void *context);
extern void *zmq_socket(void *context, int type);
extern int zmq_close(void *socket);
extern int zmq_setsockopt(void *socket, int option, const void *value, size_t size);
extern int zmq_bind(void *socket, const char *endpoint);
extern int zmq_connect(void *socket, const char *endpoint);
extern int zmq_send(void *socket, const void *data, size_t size, int flags);
extern int zmq_recv(void *socket, void *data, size_t size, int flags);
extern int zmq_errno(void);

/* An opaque message of 64 bytes, aligned as a pointer. */
typedef struct { void *opaque[8]; } zmq_msg_t;
extern int zmq_msg_init(zmq_msg_t *message);
extern int zmq_msg_close(zmq_msg_t *message);
extern int zmq_msg_recv(zmq_msg_t *message, void *socket, int flags);
extern int zmq_msg_send(zmq_msg_t *message, void *socket, int flags);
extern int zmq_msg_more(const zmq_msg_t *message);
extern void *zmq_msg_data(zmq_msg_t *message);
extern size_t zmq_msg_size(const zmq_msg_t *message);

#endif
