/*
 * rackrail for programs in any language: gradients summed over all ranks of a job, by rackrail's
 * plans, over its transports.
 *
 * A job. Every process calls rackrail_init() once and then has a context: its place in the job.
 * Its rank comes from the configuration or from the variables that launchers set (torchrun, mpirun,
 * srun, TF_CONFIG, rackrail's own). Without either, the job is this process alone, and every sum is
 * what was given. It refuses what several ranks would refuse. Exceptions: files of a cluster or a
 * plan with other numbers of ranks, and a transport or NCCL that cannot be used here.
 *
 * Collective calls (init, plan, start, all_reduce, finish) are made by all ranks, in one order.
 *
 * Sums of single arrays. rackrail_all_reduce() takes an array of any size, always exactly in FP32.
 * It is cut into pieces for which every job has a plan.
 *
 * Sums of planned buckets. Programs whose buffers have the same sizes in every step plan for them
 * (rackrail_plan). They then sum them with rackrail_start() and rackrail_wait(), by the routes and
 * codecs of that plan, while they compute.
 *
 * Errors. A function that returns a status returns RACKRAIL_OK or says why not in one line:
 * rackrail_last_error(). After RACKRAIL_PEER_LOST the job is over: the context is good for
 * rackrail_destroy() only.
 * A sum has no time limit: it may take as long as its links need. A process that has ended is
 * noticed at once, one that hangs after ten seconds.
 *
 * Threads. Any thread may call; one waits while others start. The library has threads of its own
 * for sums under way.
 *
 * The library exports only what is declared here, and no C++ type.
 * Structures start with their size, so that later versions can add members at their end.
 */
#ifndef RACKRAIL_H
#define RACKRAIL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RACKRAIL_API __attribute__((visibility("default")))
#else
#define RACKRAIL_API
#endif

/* Grows when a function or a member is added; the library's is rackrail_interface(). */
#define RACKRAIL_INTERFACE 4

typedef struct rackrail_context rackrail_context;

typedef enum rackrail_status {
  RACKRAIL_OK = 0,
  RACKRAIL_FAILED = 1,    /* the environment: a port that is taken, a transport, memory */
  RACKRAIL_BAD_INPUT = 2, /* an argument, a variable or a file is at fault */
  RACKRAIL_PEER_LOST = 3  /* another rank is gone or has failed: the job is over */
} rackrail_status;

typedef enum rackrail_type { RACKRAIL_FLOAT32 = 0 } rackrail_type;

typedef enum rackrail_device { RACKRAIL_HOST = 0, RACKRAIL_CUDA = 1 } rackrail_device;

typedef enum rackrail_operation { RACKRAIL_SUM = 0, RACKRAIL_MEAN = 1 } rackrail_operation;

/* Memory of the caller, which the sum (or the mean) replaces. */
typedef struct rackrail_buffer {
  size_t size; /* sizeof(rackrail_buffer) */
  void* data;
  int64_t elements;
  int32_t type;      /* rackrail_type */
  int32_t device;    /* rackrail_device; RACKRAIL_CUDA only in a job of RACKRAIL_CUDA */
  int32_t device_id; /* the job's */
  void* stream;      /* the cudaStream_t that has written `data` (NULL: the default stream), whose
                        work so far is waited for; NULL for host memory */
} rackrail_buffer;

/* What is NULL or 0 comes from the environment variable in brackets, or is the default. */
typedef struct rackrail_config {
  size_t size; /* sizeof(rackrail_config) */
  /* The job. With world_size > 0, rank is this process's and coordinator must be there where there
     are several; with 0 all three come from the launcher. */
  int32_t world_size;
  int32_t rank;
  const char* coordinator; /* host:port where rank 0 listens [RACKRAIL_COORDINATOR]; or, where all
                              ranks are of one user on one machine, "unix:" and a hexadecimal number
                              that no other job there has */
  const char* token_file; /* the job's secret; or the secret itself in [RACKRAIL_JOB_TOKEN]. Without
                             one, all ranks must be on one machine. */
  const char*
      cluster; /* file or shipped name [RACKRAIL_CLUSTER]; "none": all ranks around a switch */
  const char* codecs; /* for planned buckets [RACKRAIL_CODECS]: "none" (default); "auto": whatever
                         is fastest within an error of 2 %; or a codec by name: "fp16", "int8" */
  const char* transport;        /* [RACKRAIL_TRANSPORT]; "ucx" */
  int64_t timeout_milliseconds; /* until all ranks have joined; 300,000. Others also wait this long
                                   for a rank 0 that found bad input, unless their launcher ends
                                   them, as torchrun and mpirun do */
  const char* plan; /* file of a plan, needed on rank 0 only [RACKRAIL_PLAN]: planned buckets move
                       by the schedules and codecs of its buckets; not together with `codecs` */
  int32_t device; /* rackrail_device: where sums are made, the same on all ranks; [RACKRAIL_DEVICE]:
                     "cpu" (default) or "cuda". Buffers of the host are copied there and back.
                     What carries sums: [RACKRAIL_GPU_PATH] "auto" (NCCL where all ranks can, else
                     the transport), "nccl", "direct" (the transport, which takes the GPU's
                     memory), "staged" (the transport by way of pinned memory) or "hybrid" (NCCL
                     in hosts, those of `cluster` or else the machines, and the transport
                     between them). Several ranks on one GPU, for tests: with
                     [RACKRAIL_SHARE_GPU] "1" on all of them, NCCL takes each for a host of its
                     own: a process of one thread gets NCCL_HOSTID and others for that, one with
                     several must have them from its start and is told which. Without them,
                     "auto" takes the transport and the others fail */
  int32_t device_id; /* with RACKRAIL_CUDA: this process's GPU. Where RACKRAIL_DEVICE says "cuda",
                        and `device` nothing: the first that no other rank of the machine has */
  const char* token; /* the job's secret itself, instead of token_file */
  int32_t is_network_private; /* 1: nobody else reads the network, so that the secret may cross it
                                 without certificates [RACKRAIL_INSECURE] */
  /* Called once from within rackrail_init(), on rank 0 of several, as soon as it listens: with all
     addresses at which the other ranks may find it ("10.0.0.1:4000 192.168.7.2:4000"), one of which
     is their `coordinator`. For programs that can tell each other, rank 0's `coordinator` being
     "0.0.0.0:0": any free port. It must return, and call nothing of rackrail's. */
  void (*on_listening)(const char* addresses, void* argument);
  void* on_listening_argument;
} rackrail_config;

/* "0.1.0" and RACKRAIL_INTERFACE of the library. */
RACKRAIL_API const char* rackrail_version(void);
RACKRAIL_API int32_t rackrail_interface(void);
/* Why this build cannot join processes on this machine, in one line; NULL: it can. */
RACKRAIL_API const char* rackrail_unavailable(void);
/* Of the last call on this thread that did not return RACKRAIL_OK: one line, valid until the next
   such call. Empty when there was none. */
RACKRAIL_API const char* rackrail_last_error(void);

/* Joins the job and waits until all ranks have come. `config` may be NULL. */
RACKRAIL_API rackrail_status rackrail_init(const rackrail_config* config,
                                           rackrail_context** context);
RACKRAIL_API int32_t rackrail_rank(const rackrail_context* context);
RACKRAIL_API int32_t rackrail_world_size(const rackrail_context* context);

/*
 * Sums an array of any size over all ranks, exactly in FP32; returns when it is done. No bucket may
 * be under way. The array has the same size on all ranks: where it has not, all of them get
 * RACKRAIL_PEER_LOST with both sizes (where sums are made on GPUs this is not checked).
 */
RACKRAIL_API rackrail_status rackrail_all_reduce(rackrail_context* context,
                                                 const rackrail_buffer* buffer, int32_t operation);

/*
 * Plans for `count` buffers of elements[i] floats each, which are given to rackrail_start() in
 * about this order in every step. All ranks adopt the plan. Rank 0 plans, so only it needs the
 * cluster's file, and sends it to the others. With a plan's file in the configuration, each
 * buffer moves as that plan's bucket of the nearest size does. ready_nanoseconds (or NULL): when
 * buffer i is ready, from the first one's beginning, ascending; planned for is the latest of all
 * ranks. `first`: the number of the first buffer's bucket; the others follow. Earlier buckets keep
 * their numbers and plans. No bucket may be under way.
 */
RACKRAIL_API rackrail_status rackrail_plan(rackrail_context* context, const int64_t* elements,
                                           const int64_t* ready_nanoseconds, int32_t count,
                                           int32_t* first);

/*
 * Starts to sum a bucket and returns at once. `buffer` must have the planned size and must not be
 * touched until rackrail_wait() has returned. A mean divides before it sums, so that codecs of 16
 * bits do not overflow sooner than the gradients. Starting a bucket that was started already begins
 * the next step: every bucket of this one must have been waited for.
 */
RACKRAIL_API rackrail_status rackrail_start(rackrail_context* context, int32_t bucket,
                                            const rackrail_buffer* buffer, int32_t operation);
/* Until the bucket is done on this rank, on a device too, whose streams may all read it then. Once
   for each start. After RACKRAIL_PEER_LOST, what a hanging peer has not taken within a second may
   still be read from the buffer: call rackrail_destroy() before releasing it. */
RACKRAIL_API rackrail_status rackrail_wait(rackrail_context* context, int32_t bucket);

/*
 * Forgets what lossy codecs left out of earlier sums of planned buckets, which error feedback would add
 * to the next ones: for programs that change the model or skip steps by hand. By each rank for itself; no
 * bucket may be under way.
 */
RACKRAIL_API rackrail_status rackrail_forget_errors(rackrail_context* context);

/*
 * What rackrail_plan() has planned, as JSON: a list with "elements", "schedule" and "codec" of each
 * bucket, which are "none" in a job of one, where nothing moves, and "error", the relative error
 * that its codecs leave in one sum without error feedback, by their model (plan/reduced_error.hpp).
 * Writes at most `capacity` characters, the terminating zero included, and returns how many there
 * are without it.
 */
RACKRAIL_API size_t rackrail_describe(const rackrail_context* context, char* text, size_t capacity);

/*
 * Orderly end: waits up to 30 s for the other ranks to call it too. Then this rank leaves, which is
 * an error only for those that begin another sum or plan; sums and plans that it asks for itself after that are
 * RACKRAIL_BAD_INPUT. A context that is destroyed without it counts as lost.
 */
RACKRAIL_API rackrail_status rackrail_finish(rackrail_context* context);
/* Ends the job for all ranks, whose calls fail with `reason`. */
RACKRAIL_API void rackrail_abort(rackrail_context* context, const char* reason);
/* Nothing may be under way on other threads. NULL is fine. Waits some seconds for messages to a
   rank that hangs. */
RACKRAIL_API void rackrail_destroy(rackrail_context* context);

#ifdef __cplusplus
}
#endif

#endif
