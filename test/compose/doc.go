// Package compose holds docker-compose.multi.yml, Dockerfile and the files in
// deploy to what they promise. Its tests read the files; with the build tag
// `compose` one of them brings the three regions up on a Docker engine, uses them
// as an operator does, cuts one off and heals it (make compose-test).
package compose
