"""Messages and services of Headway, package headway.v1: .proto files and the code generated from them."""
