"""Remember how choices turned out, and learn from that which role, persona and model to choose next.

episodes         data types: situation, action, outcome, reward, episode
memory           Memory: learns from outcomes, finds similar episodes, answers questions
store            the SQLite database, which is the truth
vectors          the index of vectors, built from the database
files            names whole files by a pointer file, for index and graph
graph            the graph that answers Cypher, built from the database; graph_reader runs in the sandbox
policy           Policy: chooses an action by the head and by similar episodes, and learns from outcomes
head             linear models on the features of a situation, and their calibration
exploration      draws actions with known probabilities, within a budget
reward           rewards and costs, and limits to what one caller can teach
router           HybridRouter: follows the memory where it is sure enough, else the rules
lessons          what a run or a chat teaches
routers          what was chosen in past runs, and what other routers would have earned: off-policy estimates
learning         Learning: the memory of a state folder, which learns from its journal; what a service has of all this
task_patterns    proposes a persona for tasks that come often and are not done well
rollouts         has tasks done whose answers can be checked, to learn from them
endpoints        the API of the memory; has the sandbox answer questions to the graph
commands         the commands about the memory; train
"""
