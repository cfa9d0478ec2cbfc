/*
 * A rank of a job, in C: what rackrail.h promises, checked against sums that are known exactly.
 *
 *     program sums       arrays of many sizes and planned buckets, several steps
 *     program misuse     what must be refused, and that the job goes on after it
 *     program lossy      a planned bucket by the codec of RACKRAIL_CODECS, in many steps; prints
 * the largest error of a step, that of the steps' mean, and a digest program die RANK   that rank
 * ends without a word in the middle of the job program quit RANK  that rank says why it ends
 *
 * Exit status 0 when all is as it should be; otherwise 1, after a line that says what is not.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/capi/rackrail.h"

static int rank;
static int ranks;

static void fail(const char* what) {
  fprintf(stderr, "rank %d: %s; last error: %s\n", rank, what, rackrail_last_error());
  exit(1);
}

static void check(int condition, const char* what) {
  if (!condition) {
    fail(what);
  }
}

static rackrail_buffer buffer_of(float* data, int64_t elements) {
  rackrail_buffer buffer;
  memset(&buffer, 0, sizeof buffer);
  buffer.size = sizeof buffer;
  buffer.data = data;
  buffer.elements = elements;
  buffer.type = RACKRAIL_FLOAT32;
  buffer.device = RACKRAIL_HOST;
  return buffer;
}

/* Whole numbers below 2^24, so that sums are exact whatever their order is. */
static float value_of(int of_rank, int step, int64_t i) {
  return (float)((of_rank + 1) * (int)(i % 97) + 3 * step);
}

static void fill(float* data, int64_t elements, int step) {
  for (int64_t i = 0; i < elements; ++i) {
    data[i] = value_of(rank, step, i);
  }
}

static void check_sum(const float* data, int64_t elements, int step, int divisor,
                      const char* what) {
  for (int64_t i = 0; i < elements; ++i) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) {
      sum += value_of(r, step, i) / (float)divisor;
    }
    if (data[i] != sum) {
      fprintf(stderr, "rank %d: %s: element %lld of %lld is %g, expected %g\n", rank, what,
              (long long)i, (long long)elements, (double)data[i], (double)sum);
      exit(1);
    }
  }
}

/* A guard behind the array: padding must never be written back into the caller's memory. */
static float* array_of(int64_t elements) {
  float* data = malloc(((size_t)elements + 1) * sizeof *data);
  check(data != NULL, "no memory");
  data[elements] = -12345.0F;
  return data;
}

static void sum_arrays(rackrail_context* job) {
  const int64_t sizes[] = {0,     1,     5,     1023,   1024,    1025,    4095,   5000,
                           16384, 65537, 99999, 262144, 1048575, 1048577, 5300001};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; ++s) {
    float* data = array_of(sizes[s]);
    rackrail_buffer buffer = buffer_of(data, sizes[s]);
    fill(data, sizes[s], (int)s);
    check(rackrail_all_reduce(job, &buffer, RACKRAIL_SUM) == RACKRAIL_OK, "all-reduce");
    check_sum(data, sizes[s], (int)s, 1, "sum of an array");
    check(data[sizes[s]] == -12345.0F, "memory behind the array was written");
    free(data);
  }
}

static void sum_buckets(rackrail_context* job, int first, const int64_t* elements, int count,
                        int operation) {
  enum { kSteps = 4 };
  float* data[8];
  for (int step = 0; step < kSteps; ++step) {
    for (int b = 0; b < count; ++b) {
      data[b] = array_of(elements[b]);
      fill(data[b], elements[b], step + b);
      rackrail_buffer buffer = buffer_of(data[b], elements[b]);
      check(rackrail_start(job, first + b, &buffer, operation) == RACKRAIL_OK, "start");
    }
    for (int b = count - 1; b >= 0; --b) {
      check(rackrail_wait(job, first + b) == RACKRAIL_OK, "wait");
      check_sum(data[b], elements[b], step + b, operation == RACKRAIL_MEAN ? ranks : 1, "bucket");
      free(data[b]);
    }
  }
}

static void sums(rackrail_context* job) {
  sum_arrays(job);
  const int64_t some[] = {300000, 70000, 100};
  const int64_t ready[] = {0, 2000000, 5000000};
  int32_t first = -1;
  check(rackrail_plan(job, some, ready, 3, &first) == RACKRAIL_OK, "plan");
  sum_buckets(job, first, some, 3, RACKRAIL_SUM);
  sum_arrays(job); /* between steps, by a plan that has the buckets too */
  const int64_t more[] = {1, 123457};
  int32_t second = -1;
  check(rackrail_plan(job, more, NULL, 2, &second) == RACKRAIL_OK, "second plan");
  check(second == first + 3, "buckets are numbered one after another");
  sum_buckets(job, second, more, 2, RACKRAIL_SUM);
  sum_buckets(job, first, some, 3, (ranks & (ranks - 1)) == 0 ? RACKRAIL_MEAN : RACKRAIL_SUM);
  char text[4096];
  const size_t length = rackrail_describe(job, text, sizeof text);
  check(length == strlen(text) && strstr(text, "300000") != NULL, "description");
  char cut[5];
  check(rackrail_describe(job, cut, sizeof cut) == length && strlen(cut) < 5, "cut description");
}

static void refused(rackrail_status status, const char* with) {
  if (status != RACKRAIL_BAD_INPUT || strstr(rackrail_last_error(), with) == NULL ||
      strchr(rackrail_last_error(), '\n') != NULL) {
    fprintf(stderr, "rank %d: status %d, expected %d and '%s' in one line: %s\n", rank, (int)status,
            RACKRAIL_BAD_INPUT, with, rackrail_last_error());
    exit(1);
  }
}

static void misuse(rackrail_context* job) {
  float data[64] = {0};
  rackrail_buffer buffer = buffer_of(data, 64);
  refused(rackrail_all_reduce(NULL, &buffer, RACKRAIL_SUM), "context");
  refused(rackrail_all_reduce(job, NULL, RACKRAIL_SUM), "buffer");
  refused(rackrail_all_reduce(job, &buffer, 7), "operation");
  buffer.device = RACKRAIL_CUDA;
  refused(rackrail_all_reduce(job, &buffer, RACKRAIL_SUM), "RACKRAIL_CUDA");
  buffer = buffer_of(data, 64);
  buffer.type = 9;
  refused(rackrail_all_reduce(job, &buffer, RACKRAIL_SUM), "type");
  buffer = buffer_of(NULL, 64);
  refused(rackrail_all_reduce(job, &buffer, RACKRAIL_SUM), "buffer.data");
  buffer = buffer_of(data, INT64_MAX);
  refused(rackrail_all_reduce(job, &buffer, RACKRAIL_SUM), "buffer.elements");
  buffer = buffer_of(data, -1);
  refused(rackrail_all_reduce(job, &buffer, RACKRAIL_SUM), "buffer.elements");
  buffer = buffer_of(data, 64);
  buffer.size = 3;
  refused(rackrail_all_reduce(job, &buffer, RACKRAIL_SUM), "size");
  buffer = buffer_of(data, 64);

  const int64_t elements[] = {64, 64};
  const int64_t backwards[] = {5, 4};
  const int64_t negative[] = {-1};
  int32_t first = -1;
  refused(rackrail_plan(job, elements, backwards, 2, &first), "ascending");
  refused(rackrail_plan(job, negative, NULL, 1, &first), "elements[0]");
  refused(rackrail_plan(job, NULL, NULL, 1, &first), "elements");
  refused(rackrail_plan(job, elements, NULL, 0, &first), "count");
  if (ranks > 1) {
    const int64_t different[] = {64, 64 + rank};
    refused(rackrail_plan(job, different, NULL, 2, &first), "rank 1 plans for buckets of [64,65]");
  }
  check(rackrail_plan(job, elements, NULL, 2, &first) == RACKRAIL_OK, "plan");
  refused(rackrail_start(job, 0, &buffer, RACKRAIL_SUM), "never planned");
  refused(rackrail_start(job, -1, &buffer, RACKRAIL_SUM), "-1");
  refused(rackrail_wait(job, first), "not started");
  buffer.elements = 63;
  refused(rackrail_start(job, first, &buffer, RACKRAIL_SUM), "63 elements");
  buffer = buffer_of(data, 64);
  check(rackrail_start(job, first, &buffer, RACKRAIL_SUM) == RACKRAIL_OK, "start");
  refused(rackrail_start(job, first, &buffer, RACKRAIL_SUM), "started again");
  float others[64] = {0};
  rackrail_buffer other = buffer_of(others, 64);
  refused(rackrail_all_reduce(job, &other, RACKRAIL_SUM), "1 bucket was started");
  refused(rackrail_finish(job), "1 bucket was started");
  check(rackrail_wait(job, first) == RACKRAIL_OK, "wait");
  refused(rackrail_wait(job, first), "not started");
  sum_arrays(job);
}

/* The same gradients in every step, so that what feedback makes up for shows in the sums' mean. */
static void lossy(rackrail_context* job) {
  enum { kElements = 200000, kSteps = 24 };
  const int64_t elements[] = {kElements};
  int32_t first = -1;
  check(rackrail_plan(job, elements, NULL, 1, &first) == RACKRAIL_OK, "plan");
  float* data = array_of(kElements);
  double* mean_of_steps = calloc(kElements, sizeof *mean_of_steps);
  check(mean_of_steps != NULL, "no memory");
  double error = 0;
  double bits = 0;
  for (int step = 0; step < kSteps; ++step) {
    if (step == kSteps / 2) { /* residuals outlive a change of the plan */
      int32_t other = -1;
      check(rackrail_plan(job, elements, NULL, 1, &other) == RACKRAIL_OK, "second plan");
    }
    for (int64_t i = 0; i < kElements; ++i) {
      data[i] = sinf((float)(i + rank));
    }
    rackrail_buffer buffer = buffer_of(data, kElements);
    check(rackrail_start(job, first, &buffer, RACKRAIL_MEAN) == RACKRAIL_OK, "start");
    check(rackrail_wait(job, first) == RACKRAIL_OK, "wait");
    for (int64_t i = 0; i < kElements; ++i) {
      double mean = 0;
      for (int r = 0; r < ranks; ++r) {
        mean += (double)sinf((float)(i + r)) / ranks;
      }
      error = fmax(error, fabs(mean - (double)data[i]));
      bits += (double)data[i] * (double)(i % 1009);
      mean_of_steps[i] += ((double)data[i] - mean) / kSteps;
    }
  }
  double lasting = 0;
  for (int64_t i = 0; i < kElements; ++i) {
    lasting = fmax(lasting, fabs(mean_of_steps[i]));
  }
  printf("%.6g %.6g %.17g\n", error, lasting, bits);
  free(mean_of_steps);
  free(data);
}

static void end_early(rackrail_context* job, int who, int with_a_word) {
  float* data = array_of(100000);
  rackrail_buffer buffer = buffer_of(data, 100000);
  const rackrail_status status = rackrail_all_reduce(job, &buffer, RACKRAIL_SUM);
  if (rank == who) {
    check(status == RACKRAIL_OK, "all-reduce");
    if (with_a_word) {
      rackrail_abort(job, "it has had enough");
    }
    _Exit(0);
  }
  /* The end may come while this rank is still in the first sum. */
  check(status == RACKRAIL_OK || status == RACKRAIL_PEER_LOST, "all-reduce");
  check(rackrail_all_reduce(job, &buffer, RACKRAIL_SUM) == RACKRAIL_PEER_LOST, "no loss");
  printf("%s\n", rackrail_last_error());
  char said[1024];
  snprintf(said, sizeof said, "%s", rackrail_last_error());
  check(rackrail_all_reduce(job, &buffer, RACKRAIL_SUM) == RACKRAIL_PEER_LOST, "a later call");
  check(strcmp(said, rackrail_last_error()) == 0, "the reason has changed");
  rackrail_destroy(job);
  exit(0);
}

int main(int argc, char** argv) {
  check(rackrail_interface() == RACKRAIL_INTERFACE, "interface");
  check(strlen(rackrail_version()) >= 5, "version");
  check(strcmp(rackrail_last_error(), "") == 0, "an error before anything was done");
  const char* what = argc > 1 ? argv[1] : "";
  rackrail_context* job = NULL;
  if (rackrail_init(NULL, &job) != RACKRAIL_OK) {
    fprintf(stderr, "%s\n", rackrail_last_error());
    return rackrail_last_error()[0] == '\0' ? 1 : 2;
  }
  rank = rackrail_rank(job);
  ranks = rackrail_world_size(job);
  if (strcmp(what, "sums") == 0) {
    sums(job);
  } else if (strcmp(what, "misuse") == 0) {
    misuse(job);
  } else if (strcmp(what, "lossy") == 0) {
    lossy(job);
  } else if (strcmp(what, "die") == 0 || strcmp(what, "quit") == 0) {
    end_early(job, atoi(argv[2]), strcmp(what, "quit") == 0);
  } else {
    fail("unknown command");
  }
  check(rackrail_finish(job) == RACKRAIL_OK, "finish");
  check(rackrail_finish(job) != RACKRAIL_OK, "a second finish");
  rackrail_destroy(job);
  return 0;
}
