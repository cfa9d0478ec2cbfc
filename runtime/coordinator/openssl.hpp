// Owners of OpenSSL's objects.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>

namespace rackrail::runtime {

template <auto free>
struct OpenSslFree {
  template <typename T>
  void operator()(T* object) const {
    free(object);
  }
};
using Certificate = std::unique_ptr<X509, OpenSslFree<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, OpenSslFree<EVP_PKEY_free>>;
using Memory = std::unique_ptr<BIO, OpenSslFree<BIO_free>>;

}  // namespace rackrail::runtime
