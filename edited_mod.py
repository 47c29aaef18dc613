import time
def work():
    print('x')
    return time.sleep(0.5)
