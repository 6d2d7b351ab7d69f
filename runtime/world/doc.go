// Package world joins the processes of a run: they meet at rank 0, agree that they are the same program with the same run, tell each
// other what has happened, and end together when one of them fails. It starts nothing: launchers do. Membership is static; whoever
// launches starts all again, and the run goes on from its last checkpoint.
//
// All control goes through rank 0, as JSON over TLS. What a run computes goes from process to process by a Fabric.
package world
